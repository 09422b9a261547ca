use std::fs::{self, File, Permissions};
use std::io::{Read, Write};
use std::os::unix::fs::{PermissionsExt, symlink};

use nix::sys::wait::{WaitStatus, waitpid};

use super::*;

/// A directory that is deleted with the test.
struct Scratch(PathBuf);

impl Scratch {
    fn new(name: &str) -> Scratch {
        let dir = std::env::temp_dir().join(format!("rsd-spawn-{name}-{}", std::process::id()));
        fs::create_dir_all(&dir).expect("a scratch directory");
        Scratch(dir.canonicalize().expect("just made"))
    }

    fn file(&self, name: &str, text: &[u8], mode: u32) -> PathBuf {
        let path = self.0.join(name);
        fs::write(&path, text).expect("a scratch file");
        fs::set_permissions(&path, Permissions::from_mode(mode)).expect("our own file");
        path
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

fn c(path: &Path) -> CString {
    CString::new(path.as_os_str().as_bytes()).expect("no zero in it")
}

fn words(list: &[&str]) -> Vec<CString> {
    list.iter().map(|word| CString::new(*word).expect("no zero in it")).collect()
}

/// Starts a shell script as a rank is started; returns its output and its exit code.
fn run(script: &str, wdir: &Path, stdin: BorrowedFd<'_>, pass: &[(BorrowedFd<'_>, RawFd)]) -> (String, i32) {
    let (mut ours, theirs) = os_pipe();
    let pid = spawn(&Command {
        program: c"/bin/sh",
        argv: &words(&["sh", "-c", script, "zero", "one two"]),
        env: &words(&["COLOUR=deep blue", "PATH=/usr/bin:/bin"]),
        own_env: &[],
        wdir: &c(wdir),
        stdin,
        stdout: theirs.as_fd(),
        stderr: theirs.as_fd(),
        pass,
        cpus: &[],
        memory: None,
        own_session: true,
    })
    .expect("a shell");
    drop(theirs);
    let mut text = String::new();
    ours.read_to_string(&mut text).expect("its output");
    let status = waitpid(pid, None).expect("our child");
    let WaitStatus::Exited(_, code) = status else { panic!("{status:?}: {text}") };
    (text, code)
}

fn os_pipe() -> (File, OwnedFd) {
    let (read, write) = nix::unistd::pipe2(nix::fcntl::OFlag::O_CLOEXEC).expect("a pipe");
    (read.into(), write)
}

fn null() -> File {
    File::open("/dev/null").expect("/dev/null")
}

/// Starts `program` in `wdir` and expects that this fails.
fn refusal(program: &Path, wdir: &Path, env: &[CString]) -> SpawnError {
    let null = null();
    let fd = null.as_fd();
    let argv = [c(program)];
    let (program, wdir) = (c(program), c(wdir));
    let command = Command {
        program: &program,
        argv: &argv,
        env,
        own_env: &[],
        wdir: &wdir,
        stdin: fd,
        stdout: fd,
        stderr: fd,
        pass: &[],
        cpus: &[],
        memory: None,
        own_session: true,
    };
    spawn(&command).expect_err("this cannot start")
}

#[test]
fn a_child_gets_its_arguments_environment_directory_input_and_code() {
    let scratch = Scratch::new("child");
    let (read, mut write) =
        nix::unistd::pipe2(nix::fcntl::OFlag::O_CLOEXEC).map(|(r, w)| (r, File::from(w))).expect("a pipe");
    write.write_all(b"line\n").expect("room in the pipe");
    drop(write);
    let (text, code) = run("pwd; echo \"$1|$COLOUR|$(cat)\"; exit 5", &scratch.0, read.as_fd(), &[]);
    assert_eq!(text, format!("{}\none two|deep blue|line\n", scratch.0.display()));
    assert_eq!(code, 5);
}

#[test]
fn a_child_has_its_own_group_default_signals_and_none_of_our_descriptors() {
    let _ours = null();
    seal_inherited().expect("/proc/self/fd");
    let script = "set -- $(cat /proc/$$/stat); [ $5 = $$ ] && echo leader
                  grep -E '^Sig(Ign|Blk)' /proc/self/status; ls /proc/$$/fd; true";
    let (text, _) = run(script, Path::new("/"), null().as_fd(), &[]);
    let zero = "0".repeat(16);
    assert_eq!(text, format!("leader\nSigBlk:\t{zero}\nSigIgn:\t{zero}\n0\n1\n2\n"));
}

#[test]
fn a_passed_descriptor_has_its_number_even_if_numbers_overlap() {
    let scratch = Scratch::new("pass");
    let extra = File::open(scratch.file("extra", b"extra\n", 0o600)).expect("just made");
    let input = File::open(scratch.file("input", b"input\n", 0o600)).expect("just made");
    let script = |fd: RawFd| format!("cat; cat <&{fd}");
    let both = "input\nextra\n";
    let (text, _) = run(&script(7), Path::new("/"), input.as_fd(), &[(extra.as_fd(), 7)]);
    assert_eq!(text, both);
    // Here the extra descriptor already has its target number, ...
    let again = || (File::open(scratch.0.join("input")), File::open(scratch.0.join("extra")));
    let (Ok(input), Ok(extra)) = again() else { panic!("both files exist") };
    let (text, _) = run_by_proc(&script(extra.as_raw_fd()), &input, &extra, extra.as_raw_fd());
    assert_eq!(text, both);
    // ... and here the target number is the input's present number.
    let (Ok(input), Ok(extra)) = again() else { panic!("both files exist") };
    let (text, _) = run_by_proc(&script(input.as_raw_fd()), &input, &extra, input.as_raw_fd());
    assert_eq!(text, both);
}

/// Runs a script that uses `/proc`, because a shell's redirections accept only descriptors of one digit.
fn run_by_proc(script: &str, input: &File, extra: &File, number: RawFd) -> (String, i32) {
    let script = script.replace(&format!("<&{number}"), &format!("/proc/self/fd/{number}"));
    run(&script, Path::new("/"), input.as_fd(), &[(extra.as_fd(), number)])
}

#[test]
fn a_source_that_an_earlier_move_overwrites_is_copied_first() {
    let files = [null(), null()];
    let (a, b) = (files[0].as_fd(), files[1].as_fd());
    let swapped = copy_endangered(&mut [(a, b.as_raw_fd()), (b, a.as_raw_fd())]).expect("descriptors");
    let above = a.as_raw_fd().max(b.as_raw_fd());
    assert!(swapped.iter().flatten().all(|copy| copy.as_raw_fd() > above), "{swapped:?}");
    assert_eq!(swapped.iter().flatten().count(), 2);
    let still = copy_endangered(&mut [(a, a.as_raw_fd()), (b, 1000)]).expect("descriptors");
    assert!(still.iter().all(Option::is_none), "{still:?}");
}

#[test]
fn a_text_without_an_interpreter_line_is_run_by_a_shell() {
    let scratch = Scratch::new("script");
    let script = scratch.file("greet", b"echo \"hello $1 from $0\"\n", 0o755);
    let (mut ours, theirs) = os_pipe();
    let null = null();
    let argv = words(&["./greet", "you"]);
    let (program, wdir) = (c(&script), c(&scratch.0));
    let pid = spawn(&Command {
        program: &program,
        argv: &argv,
        env: &[],
        own_env: &[],
        wdir: &wdir,
        stdin: null.as_fd(),
        stdout: theirs.as_fd(),
        stderr: null.as_fd(),
        pass: &[],
        cpus: &[],
        memory: None,
        own_session: true,
    })
    .expect("a shell runs it");
    drop(theirs);
    let mut text = String::new();
    ours.read_to_string(&mut text).expect("its output");
    assert_eq!(text, format!("hello you from {}\n", script.display()));
    assert_eq!(waitpid(pid, None), Ok(WaitStatus::Exited(pid, 0)));
}

#[test]
fn a_refusal_names_the_culprit() {
    let scratch = Scratch::new("refusal");
    let dir = scratch.0.display();
    let root = Path::new("/");
    let text = |program: &Path, wdir: &Path| refusal(program, wdir, &[]).to_string();
    let sh = Path::new("/bin/sh");
    assert_eq!(text(sh, &scratch.0.join("none")), format!("working directory {dir}/none: not found"));
    let plain = scratch.file("plain", b"x", 0o644);
    assert_eq!(text(sh, &plain), format!("working directory {dir}/plain: is not a directory"));
    assert_eq!(text(&scratch.0.join("none"), root), format!("program {dir}/none: not found"));
    assert_eq!(text(&plain, root), format!("program {dir}/plain: not executable (chmod +x {dir}/plain)"));
    assert_eq!(text(&scratch.0, root), format!("program {dir}: is a directory"));
    let script = scratch.file("script", b"#! /no/such/python -u\nprint()\n", 0o755);
    assert_eq!(
        text(&script, root),
        format!("program {dir}/script: its interpreter /no/such/python is not on this node")
    );
    let binary = scratch.file("binary", b"\x7fELF nonsense", 0o755);
    assert_eq!(text(&binary, root), format!("program {dir}/binary: a binary for another kind of machine, or damaged"));
    let long = [CString::new("V=".to_owned() + &"x".repeat(1 << 20)).expect("no zero in it")];
    let text = refusal(sh, root, &long).to_string();
    assert_eq!(text, "program /bin/sh: arguments and environment are too long together (1048587 bytes)");
}

#[test]
fn a_name_with_a_slash_is_a_path_and_other_names_are_searched_in_path() {
    let scratch = Scratch::new("resolve");
    let tool = scratch.file("tool", b"", 0o755);
    let bin = scratch.0.join("bin");
    fs::create_dir(&bin).expect("a directory");
    symlink(&tool, bin.join("linked")).expect("a link");
    fs::create_dir(bin.join("tool")).expect("a directory of the program's name, which must be skipped");
    let find = |name: &str, path: &str| resolve(OsStr::new(name), &scratch.0, OsStr::new(path));
    assert_eq!(find("./tool", ""), Ok(scratch.0.join("./tool")));
    assert_eq!(find(&tool.to_string_lossy(), ""), Ok(tool.clone()));
    assert_eq!(find("linked", "/nowhere:bin"), Ok(bin.join("linked")));
    assert_eq!(find("tool", "bin::/nowhere"), Ok(tool));
    assert_eq!(find("sh", "").map(|path| path.ends_with("bin/sh")), Ok(true));
}

#[test]
fn an_unknown_name_is_refused_with_the_searched_directories() {
    let scratch = Scratch::new("sought");
    let dir = scratch.0.display().to_string();
    scratch.file("tool", b"", 0o755);
    scratch.file("notes", b"", 0o644);
    let refuse = |name: &str, path: &str| {
        resolve(OsStr::new(name), &scratch.0, OsStr::new(path)).expect_err("no such program").to_string()
    };
    assert_eq!(refuse("./a.out", "/bin"), format!("program ./a.out: not found in {dir}"));
    assert_eq!(refuse("a.out", "/x:/y"), "program a.out: not found in PATH (/x:/y)");
    assert_eq!(refuse("tool", "/x"), format!("program tool: not found in PATH (/x); {dir} has one: write it with ./"));
    assert_eq!(refuse("./notes", "/x"), format!("program {dir}/./notes: not executable (chmod +x {dir}/./notes)"));
    assert_eq!(refuse("notes", &dir), format!("program {dir}/notes: not executable (chmod +x {dir}/notes)"));
    assert_eq!(refuse("", "/x"), "program \"\": not found in PATH (/x)");
    assert_eq!(refuse("/dev/null", "/x"), "program /dev/null: is not a regular file");
}

#[test]
fn our_end_of_a_pipe_never_blocks_and_the_childs_end_blocks() {
    let blocks = |fd: BorrowedFd<'_>| fcntl(fd, FcntlArg::F_GETFL).expect("flags") & libc::O_NONBLOCK == 0;
    let kept = |fd: BorrowedFd<'_>| fcntl(fd, FcntlArg::F_GETFD).expect("flags") & libc::FD_CLOEXEC == 0;
    let (socket, peer) = socket_pair().expect("a socket pair");
    for (ours, theirs) in [output_pipe().expect("a pipe"), input_pipe().expect("a pipe"), (socket.into(), peer)] {
        assert!(!blocks(ours.as_fd()) && blocks(theirs.as_fd()));
        assert!(!kept(ours.as_fd()) && !kept(theirs.as_fd()));
    }
    let (ours, theirs) = output_pipe().expect("a pipe");
    File::from(theirs).write_all(b"up").expect("room in the pipe");
    let mut text = String::new();
    File::from(ours).read_to_string(&mut text).expect("a closed pipe ends");
    assert_eq!(text, "up");
}
