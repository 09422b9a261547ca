//! A job does not succeed as n worlds of one: its program's MPI library must be able to use rsd's process manager.

use std::fs;
use std::path::{Path, PathBuf};

use rsd_tests::{Call, Dvm, Mpi, Options, Running};

/// A DVM with slots for several jobs at a time.
fn roomy() -> Dvm {
    Dvm::start_with(Options { nodes: 1, slots: 16, args: Vec::new() })
}

/// A stand-in that looks like Cray MPICH from the outside: an `MPI_Init` that finds no other process.
fn cray(dvm: &Dvm) -> PathBuf {
    let library = dvm.scratch().join("libmpi_cray.so.12");
    let source = dvm.file("cray.c", "int MPI_Init(int *argc, char ***argv) { return 0; }\n");
    let soname = "-Wl,-soname,libmpi_cray.so.12";
    Call::new("cc").args(["-shared", "-fPIC", soname, &source, "-o"]).args([&library]).ok();
    library
}

/// A program that prints its version if it is asked for it, and otherwise is rank 0 of 1.
fn hello(dvm: &Dvm, name: &str, text: &str, more: &[&Path]) -> String {
    let main = "#include <stdio.h>\n#include <string.h>\n\
                int MPI_Init(int *, char ***);\n\
                int main(int argc, char **argv) {\n\
                if (argc > 1 && !strcmp(argv[1], \"--version\")) return puts(\"version 1\") < 0;\n\
                MPI_Init(&argc, &argv);\n\
                return puts(\"hello from rank 0 of 1\") < 0; }\n";
    let source = dvm.file(&format!("{name}.c"), format!("{main}{text}"));
    let program = dvm.scratch().join(name);
    Call::new("cc").args([&source, "-o"]).args([&program]).args(more).ok();
    program.display().to_string()
}

#[track_caller]
fn is_alone(failed: &str, size: &str, library: &str, dir: &Path) {
    let place = format!("({library} in {})", dir.display());
    let all = format!("each of the {size} processes runs alone, as rank 0 of 1");
    for part in ["the program uses ", &place, &all, "use --allow-singletons"] {
        assert_eq!(failed.matches(part).count(), 1, "{part:?} is not once in {failed:?}");
    }
}

#[test]
fn a_short_program_with_an_mpi_that_cannot_reach_rsd_fails_its_job() {
    let dvm = Dvm::start(1);
    let library = cray(&dvm);
    let linked = hello(&dvm, "linked", "", &[&library, Path::new(&format!("-Wl,-rpath,{}", dvm.scratch().display()))]);
    // A stand-in for a program into which an old Open MPI is linked.
    let text = "const char *volatile texts[] = {\"Open MPI v3.1.6, package: Open MPI\", \"OMPI_MCA_\"};\n\
                int MPI_Init(int *argc, char ***argv) { return !texts[0] || !texts[1]; }\n";
    let within = hello(&dvm, "within", text, &[]);
    for (program, file, name) in [(&linked, "libmpi_cray.so.12", "Cray MPICH"), (&within, "within", "Open MPI")] {
        let run =
            |options: &[&str], words: &[&str]| dvm.rsctl(["run", "-n", "2"]).args(options).args([program]).args(words);
        let failed = run(&[], &[]).end();
        assert_eq!(failed.status.code(), Some(250), "{failed}");
        is_alone(&failed.err(), "2", file, &dvm.scratch());
        // The end of the first rank may end the second before it prints.
        assert!(failed.err().contains(name) && failed.out().contains("rank 0 of 1"), "{failed}");
        failed.fails(250);
        assert_eq!(run(&[], &["--version"]).ok(), "version 1\nversion 1\n");
        assert_eq!(run(&["--allow-singletons"], &[]).ok().lines().count(), 2);
        dvm.rsctl(["run", "-n", "1", program]).ok();
    }
    let job = dvm.rsctl(["submit", "-n", "3", &linked]).ok();
    dvm.rsctl(["wait", job.trim()]).fails(250);
    let job = dvm.rsctl(["submit", "-n", "3", "--allow-singletons", &linked]).ok();
    dvm.rsctl(["wait", job.trim()]).ok();
    // Several programs, of which one uses MPI.
    dvm.rsctl(["run", "-n", "1", "true", ":", "-n", "1", &linked]).fails(250);
    dvm.rsctl(["run", "-n", "1", "true", ":", "-n", "1", &linked, "--version"]).ok();
}

#[test]
fn a_program_that_could_have_reached_rsd_and_did_not_call_mpi_init_succeeds() {
    let dvm = Dvm::start(1);
    for mpi in [Mpi::Debian, Mpi::Wheel, Mpi::Ours] {
        let idle = mpi.program("idle.c");
        for words in [&[][..], &["init"]] {
            dvm.rsctl(["run", "-n", "3", &idle]).args(words).ok();
        }
    }
}

#[test]
fn ranks_that_run_with_an_mpi_that_cannot_reach_rsd_are_ended() {
    let dvm = roomy();
    let preload = format!("LD_PRELOAD={}", cray(&dvm).display());
    let gate = dvm.scratch().join("gate");
    let script = format!("until test -e {}; do sleep 0.02; done", gate.display());
    let run = |options: &[&str]| dvm.rsctl(["run"]).args(options).args(["-x", &preload, "sh", "-c", &script]).start();
    let (single, allowed) = (run(&["-n", "1"]), run(&["-n", "3", "--allow-singletons"]));
    // The gate is closed, so only rsd ends these.
    let failed = run(&["-n", "3"]).end();
    is_alone(&failed.err(), "3", "libmpi_cray.so.12", &dvm.scratch());
    failed.fails(250);
    dvm.file("gate", "");
    single.end().ok();
    allowed.end().ok();
}

#[test]
fn ranks_with_an_emptied_environment_are_ended() {
    let dvm = roomy();
    for mpi in [Mpi::Debian, Mpi::Wheel, Mpi::Ours] {
        let (gate, program) = (dvm.scratch().join(format!("{mpi:?}")), mpi.program("gated.c"));
        let run = |options: &[&str], words: &[&str]| -> Running {
            let run = dvm.rsctl(["run", "-n", "2"]).args(options).args(["env"]).args(words);
            run.args([&program]).args([&gate]).start()
        };
        let allowed = run(&["--allow-singletons"], &["-i"]);
        let meant = run(&[], &["-i", "RSD_MPI_SINGLETON=allow"]);
        // rsd's own library and MPICH 5 refuse to run alone if only some of the variables are removed.
        let partly = (mpi == Mpi::Debian).then_some(&["-u", "PMI_FD"][..]);
        for words in std::iter::once(&["-i"][..]).chain(partly) {
            let failed = run(&[], words).end();
            let said = "but neither PMI_FD nor PMI_PORT was in its environment";
            assert_eq!(failed.err().matches(said).count(), 1, "{failed}");
            assert!(failed.err().contains("each of the 2 processes runs alone"), "{failed}");
            failed.fails(250);
        }
        fs::write(&gate, "").expect("the DVM's directory is writable");
        allowed.end().ok();
        meant.end().ok();
    }
}
