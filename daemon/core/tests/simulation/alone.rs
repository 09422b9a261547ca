//! Ranks whose MPI library cannot use rsd's process manager: each would be rank 0 of 1.

use std::time::Duration;

use rsd_core::step::{Links, Mapped, MappedBy, Reach};
use rsd_core::{JobId, Tuning};
use rsd_proto::v1::{JobInfo, JobSpec, JobState, rank_exit::How};

use crate::checks::{Seed, seeds, spec};
use crate::ranks::{self, Op};
use crate::world::{Event, Fault, World};

const PMI1: Option<Reach> = Some(Reach { pmi1: true, pmix: false });
const NONE: Option<Reach> = Some(Reach { pmi1: false, pmix: false });
const CRAY: &str = "/opt/cray/lib/libmpi_cray.so.12";
const OURS: &str = "/usr/lib/libmpi_abi.so.1";

fn mapped(file: &str, reach: Option<Reach>) -> Mapped {
    Mapped(vec![MappedBy::default(), MappedBy { files: vec![file.to_owned()], reach }])
}

/// Returns why a job has failed because its ranks are alone; None: it has not failed.
fn alone(world: &mut World, job: JobId) -> Option<String> {
    world.run();
    if world.job(job).state() == JobState::Done {
        world.assert_done(job);
        return None;
    }
    let JobInfo { cause: Some(cause), exit_code: 250, .. } = world.job(job) else { panic!("{:?}", world.job(job)) };
    match cause.how {
        Some(How::Failed(why)) => Some(why),
        other => panic!("{other:?}"),
    }
}

#[test]
fn a_job_fails_soon_if_its_ranks_run_with_an_mpi_that_cannot_reach_rsd() {
    for seed in seeds(20) {
        let _seed = Seed(seed);
        let mut world = World::new(seed, 3, 4, Tuning::default());
        let silent = world.program(|_, _, _| vec![Op::Sleep(Duration::from_secs(30)), Op::Exit(0)]);
        let late = world.program(|rank, size, rng| {
            let first = if rank == 0 { vec![] } else { vec![Op::Sleep(Duration::from_secs(10))] };
            [first, ranks::mpi(rank, size, 1, rng)].concat()
        });
        for number in 0..4 {
            let at = world.rng.within(Duration::from_secs(2)) * number;
            world.after(at, Event::Fault(Fault::CutAnyStep));
        }
        let run = |world: &mut World, program: usize, ranks: u32| {
            let job = world.submit(spec(program, ranks));
            let why = alone(world, job);
            assert!(why.is_none() || !world.records[&(job, 0)].finished, "it is ended");
            why
        };
        assert_eq!(run(&mut world, silent, 8), None, "programs without MPI");
        world.mapped = mapped(OURS, PMI1);
        assert_eq!(run(&mut world, silent, 8), None, "they may call MPI_Init later");
        world.mapped = mapped(OURS, None);
        assert_eq!(run(&mut world, silent, 8), None, "their environment says that this is intended");
        for (file, reach, said) in [
            (OURS, NONE, "uses an MPI (libmpi_abi.so.1 in /usr/lib), but neither PMI_FD nor PMI_PORT"),
            (
                CRAY,
                PMI1,
                "uses Cray MPICH (libmpi_cray.so.12 in /opt/cray/lib), which asks for the PMI of Cray's launcher",
            ),
        ] {
            world.mapped = mapped(file, reach);
            let why = run(&mut world, silent, 8).expect("they are alone");
            assert!(
                why.contains(said) && why.contains("each of the 8 processes") && why.contains("--allow-singletons"),
                "{why}"
            );
            assert_eq!(run(&mut world, silent, 1), None, "a single rank is always rank 0 of 1");
            assert_eq!(run(&mut world, late, 4), None, "a rank of the node has found rsd");
            let job = world.submit(JobSpec { allow_singletons: true, ..spec(silent, 8) });
            assert_eq!(alone(&mut world, job), None);
        }
        world.assert_at_rest();
    }
}

#[test]
fn a_job_fails_if_its_ranks_have_run_with_an_mpi_that_cannot_reach_rsd() {
    for seed in seeds(20) {
        let _seed = Seed(seed);
        let mut world = World::new(seed, 3, 4, Tuning::default());
        let links = |file: &str| Links { files: vec![file.to_owned()], within: None };
        let within = |major| Links { within: Some(("/home/a.out".to_owned(), major)), ..Links::default() };
        let script = |code: i32| move |_: u32, _: u32, _: &mut crate::rng::Rng| vec![Op::Exit(code)];
        let (quick, fails) = (world.program(script(0)), world.program(script(3)));
        let mpi = world.program(|rank, size, rng| ranks::mpi(rank, size, 1, rng));
        let said = |world: &mut World, program: usize, ranks: u32, words: &[&'static str]| {
            let mut spec = spec(program, ranks);
            spec.apps[0].argv.extend(words.iter().map(|word| (*word).into()));
            let job = world.submit(spec);
            alone(world, job)
        };
        assert_eq!(said(&mut world, quick, 8, &[]), None);
        world.links = links(OURS);
        assert_eq!(said(&mut world, quick, 8, &[]), None, "MPI_Init would have reached rsd");
        for (links, name) in [
            (links(CRAY), "Cray MPICH (libmpi_cray.so.12 in /opt/cray/lib), which asks for"),
            (
                links("/opt/lib/libmpi.so.20.10.1"),
                "Open MPI (libmpi.so.20.10.1 in /opt/lib), which asks for its own launcher",
            ),
            (links("/opt/lib/libmpi.so.40.30.4"), "Open MPI (libmpi.so.40.30.4 in /opt/lib), which asks for PMIx"),
            (within(3), "Open MPI (a.out in /home), which asks for its own launcher"),
        ] {
            world.links = links;
            let why = said(&mut world, quick, 8, &[]).expect("they were alone");
            assert!(why.contains(name), "{why}");
            for word in ["--help", "--version", "-V"] {
                assert_eq!(said(&mut world, quick, 8, &["-q", word]), None, "it says something about itself");
            }
            assert_eq!(said(&mut world, quick, 1, &[]), None, "a single rank is always rank 0 of 1");
            assert_eq!(said(&mut world, mpi, 8, &[]), None, "they have found rsd");
            let job = world.submit(spec(fails, 8));
            world.run();
            world.assert_ended(job, JobState::Failed, 3);
        }
        world.assert_at_rest();
    }
}
