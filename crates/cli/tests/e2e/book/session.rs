// SPDX-License-Identifier: MIT OR Apache-2.0
//! A shell that runs the commands of one page, block by block, in a machine of its own.
//!
//! The shell has its own /run, /mnt, /srv, /etc, network and processes: all of it is gone with the
//! session. Between two blocks the shell waits, until all that a block should print has come.

use std::fmt::Write as _;
use std::io::{BufRead, BufReader, Write as _};
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::mpsc::{self, Receiver, RecvTimeoutError};
use std::time::{Duration, Instant};

use super::files::{FOLDER, here, make_devices, path_of};
use super::page::{Block, Page};
use super::program;
use crate::harness::{Place, is_root, output, tool};

/// For one block. Far more than needed: the machine may be busy with other tests.
const LIMIT: Duration = Duration::from_secs(60);
/// The shell's word that a block is done, before the number of programs that go on behind it.
const DONE: &str = "@@ this block is done, and still running are ";

/// Puts the shell's folders in place.
const BEGIN: &str = r#"
exec 2>&1 9<&0 </dev/null
set -e
PATH=/run/bin:$PATH
ip link set lo up
mount -t tmpfs tmpfs /run
mount -t tmpfs tmpfs /mnt
mkdir /run/bin "$DEVICES" srv
mount --bind srv /srv
touch /run/bin/flashfront
mount --bind "$PROGRAM" /run/bin/flashfront
mount --bind devices "$DEVICES"
trap 'umount -R /mnt 2>/dev/null; [ -z "${LOOP-}" ] || losetup --detach "$LOOP"' EXIT
"#;

/// Gives the shell an /etc of its own, which takes a second: for pages that name it.
const ETC: &str = "cp -r /etc etc 2>/dev/null || true\nmount --bind etc /etc\n";

/// A page's shell.
pub(super) struct Session {
    child: Child,
    stdin: ChildStdin,
    /// Lines of its stdout and stderr; closed when all of its processes have ended.
    lines: Receiver<String>,
    /// All that was printed since the session began.
    said: String,
}

impl Session {
    /// Whether this machine gives namespaces.
    pub(super) fn is_possible() -> bool {
        output(in_namespaces().arg("true")).status.success()
    }

    /// Starts the shell with the page's files in their places. Nothing if this machine gives no
    /// namespaces.
    pub(super) fn start(place: &Place, files: &[&Block], shell: &[&Block]) -> Option<Self> {
        if !Self::is_possible() {
            return None;
        }
        let mut script = BEGIN.to_owned();
        if files.iter().chain(shell).any(|block| block.text.contains("/etc/")) {
            script += ETC;
        }
        for (index, file) in files.iter().enumerate() {
            let Some(path) = path_of(file) else { continue };
            let copy = place.file(&format!("page-{index}"));
            std::fs::write(&copy, here(&file.text)).expect("a file can be made here");
            writeln!(script, "install -D -m 644 {} {}", copy.display(), path.display()).expect("a string takes it");
        }
        for block in shell {
            let commands = here(&block.text);
            writeln!(script, "{commands}echo; echo '{DONE}'\"$(jobs -rp | wc -l)\"; read -r go <&9")
                .expect("a string takes it");
        }
        // A page that was followed to its end has detached its loop device itself.
        script += "trap - EXIT\n";
        let file = place.file("page.sh");
        std::fs::write(&file, script).expect("a file can be made here");
        let mut command = in_namespaces();
        let devices = place.dir().join("devices");
        std::fs::create_dir(&devices).expect("a folder can be made here");
        make_devices(&devices);
        command.env("PROGRAM", program()).env("DEVICES", FOLDER).env("NO_COLOR", "1");
        command.env_remove("XDG_RUNTIME_DIR").env_remove("RUST_LOG");
        // Some pages start the daemon as root, and its usual folder is the machine's.
        command.env("STATE_DIRECTORY", place.file("state")).env("HOME", place.dir());
        command.arg("bash").arg(&file).current_dir(place.dir()).stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut child = command.spawn().expect("unshare can be started");
        let stdin = child.stdin.take().expect("the pipe was asked for");
        let stdout = child.stdout.take().expect("the pipe was asked for");
        let (send, lines) = mpsc::channel();
        std::thread::spawn(move || {
            for line in BufReader::new(stdout).lines().map_while(Result::ok) {
                if send.send(line).is_err() {
                    break;
                }
            }
        });
        Some(Self { child, stdin, lines, said: String::new() })
    }

    /// Has one block run, and waits for its end and for all that it should print.
    #[track_caller]
    pub(super) fn run(&mut self, page: &Page, block: &Block) {
        let place = format!("{}:{}", page.path, block.line);
        let prints: Vec<String> = block.prints.iter().map(|line| here(line)).collect();
        let mut prints = prints.iter().peekable();
        let end = Instant::now() + LIMIT;
        let mut done = false;
        while !done || prints.peek().is_some() {
            let line = self.lines.recv_timeout(end.saturating_duration_since(Instant::now()));
            let line = line.unwrap_or_else(|why| {
                let why = match (why, prints.peek()) {
                    (RecvTimeoutError::Disconnected, _) => "a command failed".to_owned(),
                    (RecvTimeoutError::Timeout, Some(line)) => format!("this line does not come: {line}"),
                    (RecvTimeoutError::Timeout, None) => format!("not done after {LIMIT:?}"),
                };
                panic!("{place}: {why}\n{}\nThe page's output:\n{}", block.text, self.said);
            });
            let running = line.strip_prefix(DONE);
            done |= running.is_some();
            prints.next_if(|pattern| matches(&line, pattern));
            self.said += &line;
            self.said.push('\n');
            if let (Some("0"), Some(line)) = (running, prints.peek()) {
                panic!("{place}: this line does not come: {line}\n{}\nThe page's output:\n{}", block.text, self.said);
            }
        }
        writeln!(self.stdin).expect("the shell waits for this");
    }

    /// Waits for the shell's end.
    #[track_caller]
    pub(super) fn end(mut self, page: &Page) {
        let status = self.child.wait().expect("our own child can be waited for");
        assert!(status.success(), "{}: {status}\n{}", page.path, self.said);
        assert!(!self.said.contains("panicked"), "{}: {}", page.path, self.said);
    }
}

impl Drop for Session {
    fn drop(&mut self) {
        // All processes of the session end with this one; after `end` there is none any more.
        self.child.kill().ok();
        self.child.wait().ok();
    }
}

/// A command to put into namespaces of its own.
fn in_namespaces() -> Command {
    let mut command = tool("unshare");
    command.args(["--mount", "--pid", "--fork", "--kill-child", "--mount-proc", "--net"]);
    if !is_root() {
        command.arg("--map-root-user");
    }
    command
}

/// Whether the line is as the page shows it; `...` stands for anything.
fn matches(line: &str, pattern: &str) -> bool {
    let (line, pattern) = (line.trim_end(), pattern.trim_end());
    let mut parts = pattern.split("...");
    let Some(mut rest) = line.strip_prefix(parts.next().unwrap_or_default()) else { return false };
    let mut parts = parts.peekable();
    if parts.peek().is_none() {
        return rest.is_empty();
    }
    while let Some(part) = parts.next() {
        if parts.peek().is_none() {
            return rest.ends_with(part);
        }
        let Some(at) = rest.find(part) else { return false };
        rest = &rest[at + part.len()..];
    }
    true
}

#[test]
fn dots_stand_for_anything() {
    for (line, pattern, expected) in [
        ("cached 4 MiB of 90", "cached 4 MiB of 90", true),
        ("cached 4 MiB of 90", "cached 4 MiB", false),
        ("cached 4 MiB of 90", "cached ... of ...", true),
        ("cached 4 MiB of 90", "... MiB of 90", true),
        ("cached 4 MiB of 90", "cached ... of 91", false),
        ("cached 4 MiB of 90", "...", true),
        ("cached 4", "cached 4...4", false),
    ] {
        assert_eq!(matches(line, pattern), expected, "{line} {pattern}");
    }
}
