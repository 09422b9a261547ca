//! The visible surface of the MPI library: its header, symbols and compilers.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use rsd_tests::built;

#[test]
fn the_library_exports_the_functions_of_the_standard_and_of_fault_tolerance_twice_and_nothing_else() {
    let table = fs::read_to_string(root().join("client-lib/abi/functions.tsv")).unwrap();
    let names = table.lines().skip(1).map(|line| line.split('\t').nth(1).unwrap());
    let expected: BTreeSet<String> = names.flat_map(|name| [name.to_owned(), format!("P{name}")]).collect();
    assert_eq!(expected.iter().filter(|name| !name.contains("MPIX_")).count(), 1328);
    let listed = output(Command::new("nm").args(["-D", "--defined-only"]).arg(library()));
    // Lines of nm: ADDRESS TYPE NAME
    let exported = listed.lines().map(|line| line.split(' ').nth(2).unwrap().to_owned()).collect();
    let difference: Vec<_> = expected.symmetric_difference(&exported).collect();
    assert!(difference.is_empty(), "{difference:?}");
}

#[test]
fn the_library_has_the_name_of_the_standard_and_is_small() {
    let dynamic = output(Command::new("readelf").arg("-d").arg(library()));
    assert!(dynamic.contains("soname: [libmpi_abi.so.1]"), "{dynamic}");
    let needed: Vec<_> = dynamic.lines().filter_map(|line| line.split("library: [").nth(1)).collect();
    assert!(needed.iter().all(|name| ["libc.", "libgcc_s.", "ld-linux"].iter().any(|known| name.starts_with(known))));
    let dir = scratch("size");
    let stripped = dir.join("stripped.so");
    output(Command::new("strip").arg(library()).arg("-o").arg(&stripped));
    let bytes = fs::metadata(&stripped).unwrap().len();
    println!("{bytes} bytes");
    // Installed, it has two thirds of that: the test profile checks arithmetic, and has a copy of every inlined function in each part of
    // the crate that is compiled alone. What would break the bound is a dependency that nobody needs, not a chapter of the standard.
    assert!(bytes < 7 << 20, "{bytes} bytes");
    fs::remove_dir_all(dir).unwrap();
}

#[test]
fn the_header_is_c99_and_cxx98_without_a_warning() {
    let dir = scratch("header");
    let source = dir.join("all.c");
    // The standard fixes sizes, and the types with which predefined handles, numbers and functions can be passed.
    let text = "
        #include <mpi.h>
        #include <mpi.h>
        typedef char status_has_32_bytes[sizeof(MPI_Status) == 32 ? 1 : -1];
        typedef char counts_have_64_bits[sizeof(MPI_Count) == 8 && sizeof(MPI_Offset) == 8 ? 1 : -1];
        typedef char addresses_fit[sizeof(MPI_Aint) == sizeof(void *) ? 1 : -1];
        #if MPI_VERSION < 5 || MPI_ABI_VERSION != 1
        #error \"not MPI 5 by the standard ABI\"
        #endif
        int use(MPI_Op *op, MPI_User_function *function, int *keyval);
        int use(MPI_Op *op, MPI_User_function *function, int *keyval) {
            MPI_T_cb_safety safety = MPI_T_CB_REQUIRE_NONE;
            MPI_Comm comms[2] = {MPI_COMM_NULL, MPI_COMM_SELF};
            MPI_Comm_create_keyval(MPI_COMM_DUP_FN, MPI_COMM_NULL_DELETE_FN, keyval, MPI_BOTTOM);
            MPI_Sendrecv(MPI_IN_PLACE, 0, MPI_LONG_LONG_INT, MPI_PROC_NULL, 0, MPI_BOTTOM, 0, MPI_C_COMPLEX,
                         MPI_ANY_SOURCE, MPI_ANY_TAG, comms[1], MPI_STATUS_IGNORE);
            PMPI_Waitall(0, (MPI_Request *) 0, MPI_STATUSES_IGNORE);
            return PMPI_Op_create_c((MPI_User_function_c *) 0, MPI_UNDEFINED, op) + MPI_Op_create(function, 1, op) +
                   (int) safety;
        }";
    fs::write(&source, text).unwrap();
    let include = built::library().join("include");
    for [compiler, language, standard] in
        [["cc", "c", "c99"], ["cc", "c", "c2x"], ["c++", "c++", "c++98"], ["c++", "c++", "c++20"]]
    {
        let mut compile = Command::new(compiler);
        compile.args([
            "-x",
            language,
            &format!("-std={standard}"),
            "-pedantic",
            "-Wall",
            "-Wextra",
            "-Werror",
            "-c",
            "-I",
        ]);
        output(compile.arg(&include).arg(&source).arg("-o").arg(dir.join("all.o")));
    }
    fs::remove_dir_all(dir).unwrap();
}

#[test]
fn c_and_cxx_compiled_by_the_wrappers_run_with_this_library() {
    let dir = scratch("wrappers");
    let source = root().join("tests/programs/about.c");
    for (wrapper, options) in [("mpicc", &[][..]), ("mpicxx", &["-x", "c++"])] {
        let (wrapper, program) = (built::library().join("bin").join(wrapper), dir.join(wrapper));
        output(Command::new(&wrapper).args(["-Wall", "-Werror"]).args(options).arg(&source).arg("-o").arg(&program));
        let told = output(&mut Command::new(&program));
        let version = format!("rsd {}, by the MPI 5.0 standard ABI", env!("CARGO_PKG_VERSION"));
        assert_eq!(told, format!("MPI 5.0, ABI 1.0, {}: {version}\n", version.len()));
        // LD_LIBRARY_PATH must take precedence: RUNPATH, not RPATH.
        let dynamic = output(Command::new("readelf").arg("-d").arg(&program));
        assert!(dynamic.contains("[libmpi_abi.so.1]") && dynamic.contains("(RUNPATH)"), "{dynamic}");
    }
    fs::remove_dir_all(dir).unwrap();
}

#[test]
fn the_wrappers_show_the_command_that_they_would_run() {
    let prefix = built::library().display();
    let show = |wrapper: &str, args: &[&str]| {
        let mut command = Command::new(built::library().join("bin").join(wrapper));
        output(command.args(args).env_remove("RSD_MPI_CC").env("RSD_MPI_CXX", "ccache g++"))
    };
    let link = format!("-L{prefix}/lib -Wl,-rpath,{prefix}/lib,--enable-new-dtags -lmpi_abi");
    assert_eq!(show("mpicc", &["-O2", "a.c", "-show"]), format!("cc -O2 a.c -I{prefix}/include {link}\n"));
    assert_eq!(show("mpicxx", &["-show", "-c", "a.cc"]), format!("ccache g++ -c a.cc -I{prefix}/include\n"));
    assert_eq!(show("mpicc", &["-showme:compile"]), format!("-I{prefix}/include\n"));
    assert_eq!(show("mpicc", &["-showme:link"]), format!("{link}\n"));
}

#[test]
fn pkg_config_finds_the_library_under_any_prefix() {
    let ask = |options: &[&str]| {
        let mut command = Command::new("pkg-config");
        command.env("PKG_CONFIG_PATH", built::library().join("lib/pkgconfig")).args(options);
        output(command.arg("rsd-mpi"))
    };
    assert_eq!(ask(&["--modversion"]).trim(), env!("CARGO_PKG_VERSION"));
    let told = ask(&["--cflags", "--libs"]);
    let folder = |option: &str| {
        let word = told.split_whitespace().find_map(|word| word.strip_prefix(option));
        PathBuf::from(word.unwrap_or_else(|| panic!("{option} in {told}"))).canonicalize().unwrap()
    };
    let prefix = built::library().canonicalize().unwrap();
    assert_eq!([folder("-I"), folder("-L")], [prefix.join("include"), prefix.join("lib")]);
    assert!(told.contains("-lmpi_abi"));
}

fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().expect("this package is a folder of the checkout")
}

fn library() -> PathBuf {
    built::library().join("lib/libmpi_abi.so.1")
}

/// An empty directory for this test.
fn scratch(test: &str) -> PathBuf {
    let dir = std::env::temp_dir().join(format!("rsd-surface-{test}-{}", std::process::id()));
    // An earlier process with this process id may have left it.
    let _ = fs::remove_dir_all(&dir);
    fs::create_dir(&dir).expect("the directory for temporary files is writable");
    dir
}

/// The output of a command, which must succeed.
#[track_caller]
fn output(command: &mut Command) -> String {
    let output = command.output().unwrap_or_else(|error| panic!("{command:?}: {error}"));
    assert!(output.status.success(), "{command:?}\n{}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).expect("these programs print text")
}
