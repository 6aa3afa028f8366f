// SPDX-License-Identifier: MIT OR Apache-2.0
//! Tests of the choice of backend: by preference, by environment, and when the kernel refuses
//! io_uring; and of what a killed process leaves.
//!
//! Environment, seccomp and a kill are a process's own, so those tests run this program again as a
//! child.

use std::io::{BufRead, BufReader};
use std::process::{Command, Stdio};

use flashfront_device::real::{Access, DeviceFile, Prefer, Reactor, ReactorError};
use flashfront_engine::{Memory, Op, Span};

/// The order for a child: `plain`, `seccomp` (refuse itself io_uring first), or a path to write to.
const CHILD: &str = "FLASHFRONT_TEST_CHILD";

#[test]
fn preferences() {
    assert_eq!(Reactor::new(Prefer::Threads).unwrap().backend_name(), "threads");
    let uring = Reactor::new(Prefer::Uring).unwrap();
    assert_eq!((uring.backend_name(), uring.notice()), ("io_uring", None));
}

#[test]
fn the_environment_forces_a_backend() {
    for (force, says) in [
        ("uring", "backend io_uring notice false"),
        ("threads", "backend threads notice false"),
        ("fast", "error FLASHFRONT_IO=fast: must be `uring` or `threads`"),
    ] {
        let output = child("plain", force);
        assert!(output.contains(says), "{force}: {output}");
    }
}

#[test]
fn refused_io_uring_means_threads_and_a_notice() {
    let output = child("seccomp", "");
    assert!(output.contains("backend threads notice true"), "{output}");
    // Asked for explicitly, it is an error that names the way out.
    let output = child("seccomp", "uring");
    assert!(
        output.contains("error the kernel refuses io_uring") && output.contains("FLASHFRONT_IO=threads"),
        "{output}"
    );
}

/// A process that is killed with I/O in flight must not leave its devices busy: the daemon is
/// started again at once.
#[test]
fn a_killed_process_frees_its_devices() {
    for force in ["uring", "threads"] {
        let folder = crate::rig::folder();
        let path = crate::rig::file(folder.path(), "disk", 64 << 20);
        for _ in 0..3 {
            let mut child = command(path.to_str().unwrap(), force).stdout(Stdio::piped()).spawn().unwrap();
            let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
            assert!(lines.any(|line| line.unwrap().ends_with("writing")), "the child did not begin");
            child.kill().unwrap();
            child.wait().unwrap();
            DeviceFile::open(&path, Access::Exclusive).unwrap();
        }
    }
}

fn command(kind: &str, force: &str) -> Command {
    let mut command = Command::new(std::env::current_exe().unwrap());
    command.args(["--exact", "backend::child_main", "--ignored", "--nocapture", "--test-threads=1"]);
    command.env(CHILD, kind).env("FLASHFRONT_IO", force);
    command
}

fn child(kind: &str, force: &str) -> String {
    let output = command(kind, force).output().unwrap();
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(output.status.success(), "{text}");
    text
}

#[test]
#[ignore = "the child of the tests above"]
fn child_main() {
    match std::env::var(CHILD).unwrap_or_default().as_str() {
        "plain" => {}
        "seccomp" => refuse_io_uring(),
        "" => return eprintln!("nothing to do: this is the child of other tests"),
        path => write_for_ever(path.as_ref()),
    }
    match Reactor::new(Prefer::Auto) {
        Ok(reactor) => {
            println!("backend {} notice {}", reactor.backend_name(), reactor.notice().is_some());
            // And it works.
            let folder = crate::rig::folder();
            let path = crate::rig::file(folder.path(), "disk", 1 << 20);
            let mut rig = crate::rig::Rig::real(&path, Prefer::Auto);
            rig.write(0, &[1; 4096], 0).unwrap();
            assert_eq!(rig.read(0, 4096, 0).unwrap(), [1; 4096]);
        }
        Err(error) => {
            assert!(matches!(error, ReactorError::Uring(_) | ReactorError::Force(_)));
            println!("error {error}");
        }
    }
}

/// 64 writes in flight until it is killed.
fn write_for_ever(path: &std::path::Path) -> ! {
    let mut rig = crate::rig::Rig::real(path, Prefer::Auto);
    let span = Span::new(rig.arena.alloc(65536), 0, 65536);
    for i in 0.. {
        rig.submit(Op::Write, i % 1024 * 65536, 65536, Some(span));
        if i >= 64 {
            rig.wait();
        }
        if i == 1000 {
            println!("writing");
        }
    }
    unreachable!("2^64 writes")
}

/// Refuses io_uring as the seccomp profiles of Docker and Podman do: io_uring_setup returns EPERM
/// in this process.
#[expect(unsafe_code, reason = "prctl with a filter program")]
fn refuse_io_uring() {
    const LOAD_WORD: u16 = 0x20;
    const JUMP_EQUAL: u16 = 0x15;
    const RETURN: u16 = 0x06;
    let op = |code, jt, jf, k| libc::sock_filter { code, jt, jf, k };
    let mut filter = [
        // The system call's number is the first word of seccomp_data.
        op(LOAD_WORD, 0, 0, 0),
        op(JUMP_EQUAL, 0, 1, libc::SYS_io_uring_setup as u32),
        op(RETURN, 0, 0, libc::SECCOMP_RET_ERRNO | libc::EPERM as u32),
        op(RETURN, 0, 0, libc::SECCOMP_RET_ALLOW),
    ];
    let program = libc::sock_fprog { len: filter.len() as u16, filter: filter.as_mut_ptr() };
    // SAFETY: plain integers, and a program that lives during the call.
    let status = unsafe {
        assert_eq!(libc::prctl(libc::PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0), 0);
        libc::prctl(libc::PR_SET_SECCOMP, libc::SECCOMP_MODE_FILTER, &raw const program)
    };
    assert_eq!(status, 0, "{}", std::io::Error::last_os_error());
}
