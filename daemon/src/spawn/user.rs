//! Becomes the user whose job a step holds. This is all that a step does as root: it looks the user up in this machine's database, and
//! gives everything else up before it reads the job's launch.

use std::ffi::CString;
use std::fs::{File, OpenOptions};
use std::io;
use std::os::fd::{AsFd, BorrowedFd};

use anyhow::{Context, bail, ensure};
use nix::sys::stat::{Mode, umask};
use nix::unistd::{Gid, Uid, User, initgroups, setgid, setresgid, setresuid, setuid};

use crate::owner::Owner;

/// Makes this process one of the user's: its uid, its groups by this machine's database, no capabilities, a session keyring of its own,
/// the usual umask, and no inherited files except 0 to 2. It cannot become root again.
///
/// `no_new_privs` is not set: users' programs may run setuid programs, as in a login.
///
/// # Errors
/// When this machine does not know the user by the same name, or the kernel refuses. The process must then end.
pub(crate) fn become_user(owner: &Owner) -> anyhow::Result<()> {
    let Owner { uid, name } = owner;
    ensure!(*uid != 0, "internal error: root's steps stay root's");
    close_files();
    let user = User::from_uid(Uid::from_raw(*uid)).with_context(|| format!("look up uid {uid} on this node"))?;
    let user = match user {
        None => bail!(
            "uid {uid} ({name} on the head) is unknown on this node: all machines of a DVM that serves all users need the same users"
        ),
        Some(user) if user.name != *name => bail!(
            "uid {uid} is {} on this node and {name} on the head: all machines of a DVM that serves all users need the same users",
            user.name
        ),
        Some(user) => user,
    };
    let c_name = CString::new(user.name.as_str()).context("read the user's name")?;
    initgroups(&c_name, user.gid).with_context(|| format!("take the groups of {name}"))?;
    // The look-up may have left connections that were opened as root.
    close_files();
    setresgid(user.gid, user.gid, user.gid).with_context(|| format!("take the group of {name}"))?;
    // The kernel also clears the permitted, effective and ambient capabilities.
    setresuid(user.uid, user.uid, user.uid).with_context(|| format!("become {name}"))?;
    ensure!(
        setuid(Uid::from_raw(0)).is_err() && setgid(Gid::from_raw(0)).is_err(),
        "internal error: still able to become root"
    );
    clear_inheritable_capabilities().context("drop the inheritable capabilities")?;
    // Otherwise the user's processes would possess the keys of the user who started the daemon. Kernels without keyrings have none.
    // SAFETY: the call takes two numbers and a null pointer.
    unsafe { libc::syscall(libc::SYS_keyctl, KEYCTL_JOIN_SESSION_KEYRING, std::ptr::null::<libc::c_char>()) };
    umask(Mode::from_bits_truncate(0o022));
    std::env::set_current_dir("/").context("enter /")?;
    Ok(())
}

fn close_files() {
    // SAFETY: the process has just begun: nothing of Rust has a descriptor above 2.
    unsafe { libc::close_range(3, libc::c_uint::MAX, 0) };
}

const KEYCTL_JOIN_SESSION_KEYRING: libc::c_long = 1;

fn clear_inheritable_capabilities() -> io::Result<()> {
    // The version of the call with 64 capabilities, and this process; then no capabilities (linux/capability.h).
    let (header, none) = ([0x2008_0522_u32, 0], [0_u32; 6]);
    // SAFETY: both pointers lead to locals of the layout that this version of the call reads.
    match unsafe { libc::syscall(libc::SYS_capset, &raw const header, &raw const none) } {
        0 => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
}

/// Opens standard error again if it is a file: the new descriptor can only append, while the daemon's can also read. Must be called
/// before [`become_user`], because only root may open root's log.
pub(crate) fn make_log_append_only() -> io::Result<()> {
    let own = File::from(io::stderr().as_fd().try_clone_to_owned()?);
    if own.metadata()?.is_file() {
        replace(&OpenOptions::new().append(true).open("/proc/self/fd/2")?, 2)?;
    }
    Ok(())
}

/// Closes the daemon's standard input and output.
pub(crate) fn detach_streams() -> io::Result<()> {
    let null = OpenOptions::new().read(true).write(true).open("/dev/null")?;
    replace(&null, 0)?;
    replace(&null, 1)
}

fn replace(file: &File, number: i32) -> io::Result<()> {
    let from: BorrowedFd<'_> = file.as_fd();
    // SAFETY: the numbers are those of the standard streams, which no object of this process owns.
    match unsafe { libc::dup2(std::os::fd::AsRawFd::as_raw_fd(&from), number) } {
        -1 => Err(io::Error::last_os_error()),
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_owner_is_read_back_as_it_was_written() {
        let owner = Owner { uid: 1000, name: "ann".into() };
        assert_eq!(Owner::parse(&owner.to_string()), Ok(owner));
        for wrong in ["", "ann", "x:ann", "-1:ann"] {
            assert!(Owner::parse(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn a_user_of_another_name_or_an_unknown_one_is_refused() {
        if !nix::unistd::geteuid().is_root() {
            return; // the process of another user may not become any
        }
        // In a child, because the files of this process would be closed.
        let refused = |owner: &str| {
            let test = std::env::current_exe().expect("this test program");
            let output = std::process::Command::new(test)
                .args(["spawn::user::tests::becomes", "--exact", "--ignored", "--nocapture"])
                .env("RSD_TEST_OWNER", owner)
                .output()
                .expect("this test program again");
            String::from_utf8_lossy(&output.stdout).into_owned()
        };
        let text = refused("65533:nobody");
        assert!(text.contains("uid 65533 (nobody on the head) is unknown on this node"), "{text}");
        let text = refused("1:somebody");
        assert!(text.contains("uid 1 is daemon on this node and somebody on the head"), "{text}");
        assert!(refused("1:daemon").contains("uid 1, groups"), "it becomes the user");
    }

    #[test]
    #[ignore = "the part of the test above in a process of its own"]
    fn becomes() {
        let owner =
            Owner::parse(&std::env::var("RSD_TEST_OWNER").expect("the other test sets it")).expect("it is valid");
        match become_user(&owner) {
            Ok(()) => {
                let status = std::fs::read_to_string("/proc/self/status").expect("this process");
                let none = |name: &str| status.lines().any(|line| line == format!("{name}:\t0000000000000000"));
                assert!(["CapInh", "CapPrm", "CapEff", "CapAmb"].into_iter().all(none), "{status}");
                println!("uid {}, groups {:?}", nix::unistd::geteuid(), nix::unistd::getgroups());
            }
            Err(error) => println!("{error:#}"),
        }
    }
}
