//! `mpiexec` and `mpirun`: `rsctl` under another name, with the options of other launchers.

use std::collections::BTreeMap;
use std::fs;
use std::path::PathBuf;

use rsd_tests::{Call, Dvm, Mpi, Options, built};

use crate::{MPIS, sorted};

/// Our library and both MPICHs.
const ALL: [Mpi; 3] = [Mpi::Ours, MPIS[0], MPIS[1]];

/// `mpiexec` as it is installed: a link to `rsctl`.
fn program(dvm: &Dvm, name: &str) -> PathBuf {
    let dir = dvm.scratch().join("launchers");
    fs::create_dir_all(&dir).expect("the DVM's directory is writable");
    let link = dir.join(name);
    if !link.exists() {
        std::os::unix::fs::symlink(built::rsctl(), &link).expect("the file does not exist yet");
    }
    link
}

/// `mpiexec` with the words of a line as options.
fn mpiexec(dvm: &Dvm, line: &str) -> Call {
    dvm.call(program(dvm, "mpiexec")).dir(dvm.scratch()).args(line.split_whitespace())
}

const WHERE: [&str; 3] = ["sh", "-c", "echo $RSD_NODE_NAME $RSD_RANK"];

/// The ranks of each node.
fn placed(printed: &str) -> BTreeMap<String, Vec<u32>> {
    let mut nodes = BTreeMap::<String, Vec<u32>>::new();
    for line in printed.lines() {
        let (node, rank) = line.split_once(' ').expect("a node and a rank");
        nodes.entry(node.to_owned()).or_default().push(rank.parse().expect("a rank"));
    }
    nodes.values_mut().for_each(|ranks| ranks.sort_unstable());
    nodes
}

fn nodes<const N: usize>(expected: [(&str, &[u32]); N]) -> BTreeMap<String, Vec<u32>> {
    expected.into_iter().map(|(node, ranks)| (node.to_owned(), ranks.to_vec())).collect()
}

#[test]
fn several_programs_form_one_world_with_each_library() {
    let dvm = Dvm::start(2);
    for mpi in ALL {
        let mpmd = mpi.program("mpmd.c");
        let expected = "0 ocean 0\n1 air 1\n2 air 1\n";
        let line = format!("-n 1 {mpmd} ocean : -n 2 {mpmd} air");
        assert_eq!(mpiexec(&dvm, &line).ok(), expected, "{mpi:?}");
        dvm.file("cfg", format!("# two programs\n-n 1 {mpmd} 'ocean'\n-n 2 \\\n {mpmd} air\n"));
        for option in ["-configfile", "--app"] {
            assert_eq!(mpiexec(&dvm, &format!("{option} cfg")).ok(), expected, "{mpi:?}");
        }
    }
    let mpirun =
        dvm.call(program(&dvm, "mpirun")).args(["--allow-run-as-root", "-np", "2", &Mpi::Ours.program("hello.c")]);
    assert_eq!(mpirun.ok().lines().count(), 2);
    let said = mpiexec(&dvm, "-configfile missing").fails(240);
    assert_eq!(said, "mpiexec: cannot read missing: No such file or directory (os error 2)\n");
}

#[test]
fn ranks_get_the_variables_that_the_options_name() {
    let dvm = Dvm::start(1);
    const SHOW: &str = "echo ${A-none} ${B-none} ${HOME+home} ${OMPI_MCA_coll-none} ${PMIX_MCA_gds-none} ${OMPI_MCA_orte_hnp_uri-none}";
    let run = |options: &str| {
        let call =
            mpiexec(&dvm, &format!("-n 1 {options}")).args(["/bin/sh", "-c", SHOW]).env("B", "mine").env("HOME", "/h");
        call.env("OMPI_MCA_coll", "tcp").env("PMIX_MCA_gds", "hash").env("OMPI_MCA_orte_hnp_uri", "7").ok()
    };
    assert_eq!(run(""), "none mine home tcp hash none\n");
    assert_eq!(run("-env A 1 -genv B 2"), "1 2 home tcp hash none\n");
    assert_eq!(run("-x A=1=2 -x OMPI_MCA_orte_hnp_uri -mca coll self"), "1=2 mine home self hash 7\n");
    assert_eq!(run("-genvnone -env A 1"), "1 none none none none\n");
    assert_eq!(run("-genvlist B,NOPE"), "none mine none none none\n");
    let told = mpiexec(&dvm, "-n 1 -x NOPE true").end();
    assert_eq!(told.err(), "mpiexec: -x NOPE is ignored: NOPE is not set here\n");
    assert_eq!(told.ok(), "");
}

#[test]
fn ranks_are_placed_by_the_rules_of_the_options_launcher() {
    let dvm = Dvm::start(3);
    let run = |options: &str| placed(&mpiexec(&dvm, options).args(WHERE).ok());
    assert_eq!(run("-ppn 1 -n 3"), nodes([("node0", &[0]), ("node1", &[1]), ("node2", &[2])]));
    assert_eq!(run("-ppn 2 -n 7"), nodes([("node0", &[0, 1, 6]), ("node1", &[2, 3]), ("node2", &[4, 5])]));
    assert_eq!(run("-hosts node1,node0 -n 4"), nodes([("node1", &[0, 2]), ("node0", &[1, 3])]));
    assert_eq!(run("-hosts node1:2,node0:3"), nodes([("node1", &[0, 1]), ("node0", &[2, 3, 4])]));
    assert_eq!(run("-hosts 2 node1 1 node2 2"), nodes([("node1", &[0]), ("node2", &[1, 2])]));
    assert_eq!(run("-N 2 -n 6"), nodes([("node0", &[0, 1]), ("node1", &[2, 3]), ("node2", &[4, 5])]));
    assert_eq!(run("-H node2,node1 -n 2"), nodes([("node2", &[0]), ("node1", &[1])]));
    assert_eq!(run("-host node1 -n 3"), nodes([("node1", &[0, 1, 2])]));
    assert_eq!(run("-n 3 --map-by node"), nodes([("node0", &[0]), ("node1", &[1]), ("node2", &[2])]));
    dvm.file("hosts", "node2:1\nnode0:2\n");
    for option in ["-f", "-hostfile", "-machinefile"] {
        assert_eq!(run(&format!("{option} hosts")), nodes([("node2", &[0]), ("node0", &[1, 2])]), "{option}");
    }
    let by_variable = mpiexec(&dvm, "-n 3").args(WHERE).env("HYDRA_HOST_FILE", "hosts").ok();
    assert_eq!(placed(&by_variable), nodes([("node2", &[0]), ("node0", &[1, 2])]));
    // Each program has its own hosts.
    let line = "-n 1 -host node2 printenv RSD_NODE_NAME : -n 1 -host node1 printenv RSD_NODE_NAME";
    assert_eq!(sorted(&mpiexec(&dvm, line).ok()), ["node1", "node2"]);
    let said = mpiexec(&dvm, "-H node1,node2 -n 4 true").fails(243);
    assert!(said.contains("4 ranks requested, 2 slots free on 2 nodes"), "{said}");
}

#[test]
fn output_is_labelled_merged_and_written_to_files() {
    let dvm = Dvm::start(2);
    let each = ["sh", "-c", "echo out $RSD_RANK; echo err $RSD_RANK >&2"];
    let run = |options: &str| mpiexec(&dvm, &format!("-n 2 --map-by node {options}")).args(each).end();
    let ended = run("-l");
    assert_eq!(
        (sorted(&ended.out()), sorted(&ended.err())),
        (vec!["[0] out 0", "[1] out 1"], vec!["[0] err 0", "[1] err 1"])
    );
    assert_eq!(sorted(&run("-prepend-pattern %r@%h:").out()), ["0@node0:out 0", "1@node1:out 1"]);
    let tagged = run("-tag-output").out();
    assert!(sorted(&tagged)[0].ends_with(",0]<stdout>:out 0"), "{tagged}");
    let merged = run("-merge-stderr-to-stdout");
    assert_eq!((sorted(&merged.out()), merged.err().as_str()), (vec!["err 0", "err 1", "out 0", "out 1"], ""));

    let read =
        |name: &str| fs::read_to_string(dvm.scratch().join(name)).unwrap_or_else(|error| format!("{name}: {error}"));
    let files = run("-outfile-pattern files/out.%r.%h -errfile-pattern files/err.%r");
    assert_eq!((files.out(), files.err()), (String::new(), String::new()));
    assert_eq!([read("files/out.0.node0"), read("files/out.1.node1")], ["out 0\n", "out 1\n"]);
    assert_eq!([read("files/err.0"), read("files/err.1")], ["err 0\n", "err 1\n"]);
    // All ranks share one file, which replaces that of the earlier job.
    dvm.file("all", "of an earlier job\n");
    run("-outfile-pattern all").ok();
    assert_eq!(sorted(&read("all")), ["out 0", "out 1"]);

    let copied = run("--output-filename dir");
    assert_eq!(sorted(&copied.ok()), ["out 0", "out 1"]);
    assert_eq!([read("dir/1/rank.0/stdout"), read("dir/1/rank.1/stderr")], ["out 0\n", "err 1\n"]);
    assert_eq!(run("--output dir=quiet:nocopy").ok(), "");
    assert_eq!(read("quiet/1/rank.1/stdout"), "out 1\n");
    let said = mpiexec(&dvm, "-n 1 -outfile-pattern /proc/nosuch/%r echo x").fails(248);
    assert!(said.contains("cannot write ranks' output to /proc/nosuch/0"), "{said}");
}

#[test]
fn ranks_start_where_and_as_the_options_say() {
    let dvm = Dvm::start(1);
    let dir = dvm.scratch().join("work");
    fs::create_dir_all(dir.join("bin")).expect("the DVM's directory is writable");
    rsd_tests::write_program(dir.join("bin/tool"), "#!/bin/sh\necho found\n");
    for option in ["-wdir", "-wd", "-dir", "--wdir"] {
        let printed = mpiexec(&dvm, &format!("-n 1 {option} work pwd")).ok();
        assert_eq!(printed.trim_end(), dir.display().to_string(), "{option}");
    }
    assert_eq!(mpiexec(&dvm, "-n 1 -wdir work -path bin tool").ok(), "found\n");
    let said = mpiexec(&dvm, "-n 1 -wdir work tool").fails(247);
    assert!(said.contains("tool"), "{said}");
    assert_eq!(mpiexec(&dvm, "-n 1 -umask 037 sh -c umask").ok(), "0037\n");
    assert_eq!(mpiexec(&dvm, "-n 1 -priority 0 nice").ok(), "19\n");
    assert_eq!(mpiexec(&dvm, "-n 2 -stdin 1 -l cat").stdin("to rank 1\n").ok(), "[1] to rank 1\n");
    assert_eq!(sorted(&mpiexec(&dvm, "-n 2 -s all -l cat").stdin("x\n").ok()), ["[0] x", "[1] x"]);
    assert_eq!(mpiexec(&dvm, "-localonly -n 2 -nompi echo x").ok(), "x\nx\n");
}

#[test]
fn the_universe_has_the_size_that_the_user_sets() {
    let dvm = Dvm::start(1);
    for mpi in ALL {
        let universe = mpi.program("universe.c");
        let run = |options: &str| mpiexec(&dvm, &format!("-n 1 {options} {universe}"));
        assert_eq!(run("").ok(), "world 1, universe 4\n", "{mpi:?}");
        assert_eq!(run("-usize 12").ok(), "world 1, universe 12\n", "{mpi:?}");
        assert_eq!(run("-usize SYSTEM").ok(), "world 1, universe 4\n", "{mpi:?}");
        assert_eq!(run("-usize INFINITE").ok(), "world 1, universe unknown\n", "{mpi:?}");
        assert_eq!(run("").env("MPIEXEC_UNIVERSE_SIZE", "9").ok(), "world 1, universe 9\n", "{mpi:?}");
    }
}

#[test]
fn fewer_ranks_start_if_the_user_accepts_them() {
    let dvm = Dvm::start(1);
    let run = |options: &str| mpiexec(&dvm, options).args(["-bind-to", "none", "printenv", "RSD_SIZE"]).end();
    let fewer = run("-n 10 -soft 1:10:2");
    assert_eq!(
        (fewer.out(), fewer.err()),
        ("3\n".repeat(3), "mpiexec: starting 3 ranks, the most acceptable ones that fit now\n".into())
    );
    let all = run("-n 3 -soft 1,2");
    assert_eq!((all.out(), all.err().as_str()), ("3\n".repeat(3), ""));
    assert_eq!(run("-soft 2:4:2").out(), "4\n".repeat(4));
    let said = run("-n 10 -soft 6,8").fails(243);
    assert!(said.contains("10 ranks requested"), "{said}");
    assert!(run("-n 10 -soft x").fails(240).contains("-soft: invalid value"));
}

#[test]
fn a_job_without_a_daemon_runs_alone_and_with_as_many_ranks_as_it_requests() {
    let dvm = Dvm::start_with(Options { nodes: 0, slots: 4, args: Vec::new() });
    let cpus = std::thread::available_parallelism().map_or(1, std::num::NonZero::get);
    let n = cpus + 2;
    for mpi in ALL {
        let ended = mpiexec(&dvm, &format!("-n {n} {}", mpi.program("hello.c"))).end();
        assert!(!ended.err().contains("daemon"), "{ended}");
        assert_eq!(ended.ok().lines().count(), n, "{mpi:?}");
    }
    let said = mpiexec(&dvm, &format!("-n {n} --nooversubscribe true")).fails(243);
    assert!(said.contains(&format!("{n} ranks requested")), "{said}");
    assert_eq!(mpiexec(&dvm, "-localonly -n 1 echo x").ok(), "x\n");
    let told = mpiexec(&dvm, "-n 1 true").env("SLURM_JOB_ID", "7").env("SLURM_JOB_NUM_NODES", "3").end();
    assert!(told.err().contains("this allocation has 3 nodes, but no daemons run on them"), "{told}");
    assert!(mpiexec(&dvm, "-do-not-launch -n 1 true").ok().contains("1 rank on 1 node"));
}

#[test]
fn mpiexec_exits_with_the_codes_of_rsctl_run() {
    let dvm = Dvm::start(1);
    for mpi in ALL {
        let ends = mpi.program("ends.c");
        let aborted = mpiexec(&dvm, &format!("-n 2 -exitcodes {ends} abort 1")).fails(7);
        assert!(aborted.contains("rank 1 on node0 called MPI_Abort with code 7: exit code 7\n"), "{mpi:?}: {aborted}");
        mpiexec(&dvm, &format!("-n 2 {ends} segv 1")).fails(139);
    }
    assert_eq!(
        mpiexec(&dvm, "-n 2 -print-all-exitcodes true").end().err(),
        "rank 0: exit code 0\nrank 1: exit code 0\n"
    );
    mpiexec(&dvm, "-n 1 sh -c").args(["exit 3"]).fails(3);
    let killed = mpiexec(&dvm, "-n 1 sh -c").args(["kill -TERM $$"]).fails(143);
    assert!(killed.starts_with("mpiexec: job ") && killed.contains("was killed by SIGTERM"), "{killed}");
    let late = mpiexec(&dvm, "-n 1 -timeout 1 sleep 1000").fails(124);
    assert!(late.contains("timed out"), "{late}");
    mpiexec(&dvm, "-n 1 sleep 1000").env("MPIEXEC_TIMEOUT", "1").fails(124);
    assert_eq!(mpiexec(&dvm, "-n 1 -timeout 0 echo x").env("MPIEXEC_TIMEOUT", "1").ok(), "x\n");
    mpiexec(&dvm, "-n 1 /nonexistent/program").fails(247);
}

#[test]
fn options_that_are_unknown_refused_or_without_meaning_are_named() {
    let dvm = Dvm::start(1);
    let said = mpiexec(&dvm, "-hostfil h -n 1 true").fails(240);
    assert_eq!(said, "mpiexec: unknown option -hostfil; did you mean -hostfile? (all options: mpiexec --help)\n");
    let said = mpiexec(&dvm, "-rankmap (0,1) true").fails(240);
    assert!(said.contains("-rankmap is not supported: write -rankfile FILE"), "{said}");
    let told = mpiexec(&dvm, "-launcher ssh -n 1 echo x : -launcher ssh -n 1 echo x").end();
    assert_eq!(told.err(), "mpiexec: -launcher is ignored: daemons already run on the nodes\n");
    assert_eq!(told.ok(), "x\nx\n");
    assert!(mpiexec(&dvm, "").fails(240).contains("no program given: mpiexec -n 4 ./a.out"));
    assert!(mpiexec(&dvm, "--version").ok().starts_with("mpiexec (rsd) "));
    assert!(mpiexec(&dvm, "-info").ok().contains("program: "));
    let help = mpiexec(&dvm, "--help").ok();
    assert!(help.contains("-n, -np, -c N ") && help.contains("-ppn, -perhost"), "{help}");
    assert!(mpiexec(&dvm, "-v -n 1 true").end().err().contains("1 rank on 1 node"));
}
