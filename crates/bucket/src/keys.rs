// SPDX-License-Identifier: MIT OR Apache-2.0
//! The keys of encrypted volumes: from a file, or from what a command prints. The environment names
//! which. Keys are never part of a command line, a log or a configuration.

use std::ffi::OsStr;
use std::io::Read;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::mpsc::channel;
use std::time::Duration;

use flashfront_object::{Keys, Volume};

use crate::error::Error;

/// Names a file with keys.
const FILE: &str = "FLASHFRONT_OBJECT_KEYS";
/// A command that prints them.
const COMMAND: &str = "FLASHFRONT_OBJECT_KEYS_COMMAND";
/// A command that has not ended by then hangs: a start would wait for it for ever.
const LIMIT: Duration = Duration::from_secs(60);
/// Rights of a file that let others than its owner read it.
const OTHERS: u32 = 0o044;

/// Reads the keys that the environment names; none if it names none.
///
/// # Errors
/// [`Error::Keys`].
pub fn keys() -> Result<Option<Keys>, Error> {
    let set = |name: &str| std::env::var_os(name).filter(|value| !value.is_empty());
    let failed = |from: String, what: String| Error::Keys { from, what };
    let (from, text) = match (set(FILE), set(COMMAND)) {
        (None, None) => return Ok(None),
        (Some(_), Some(_)) => {
            let what = "both are set, and only one may be: unset one of them".to_owned();
            return Err(failed(format!("{FILE} and {COMMAND}"), what));
        }
        (Some(path), None) => {
            let from = path.to_string_lossy().into_owned();
            let text = std::fs::read_to_string(&path).map_err(|error| failed(from.clone(), error.to_string()))?;
            (from, text)
        }
        (None, Some(command)) => {
            let from = format!("the command in {COMMAND}");
            let text = printed(&command, LIMIT).map_err(|what| failed(from.clone(), what))?;
            (from, text)
        }
    };
    let parsed = Keys::parse(&text).map_err(|line| match line {
        0 => failed(from.clone(), "there is no key in it".to_owned()),
        line => failed(from.clone(), format!("line {line} is no key")),
    });
    parsed.map(Some)
}

/// Runs a command; returns what it prints. After the limit it is killed, with all that it started.
fn printed(command: &OsStr, limit: Duration) -> Result<String, String> {
    let mut command = {
        let mut sh = Command::new("sh");
        sh.arg("-c").arg(command).stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::inherit());
        sh.process_group(0).spawn().map_err(|error| error.to_string())?
    };
    let group = rustix::process::Pid::from_child(&command);
    let (send, read) = channel();
    let mut stdout = command.stdout.take().expect("bug: its output is a pipe");
    let reader = std::thread::Builder::new().name("keys".to_owned()).spawn(move || {
        let mut bytes = Vec::new();
        let result = stdout.read_to_end(&mut bytes).map(|_| bytes);
        // Whoever waited may have given up.
        let _ = send.send(result);
    });
    let bytes = match reader.map(|_| read.recv_timeout(limit)) {
        Ok(Ok(result)) => result.map_err(|error| error.to_string()),
        Ok(Err(_)) => Err(format!("it has not ended for {} s, and was killed", limit.as_secs())),
        Err(error) => Err(error.to_string()),
    };
    if bytes.is_err() {
        let _ = rustix::process::kill_process_group(group, rustix::process::Signal::KILL);
    }
    let status = command.wait().map_err(|error| error.to_string())?;
    let bytes = bytes?;
    if !status.success() {
        return Err(format!("it ended with {status}"));
    }
    String::from_utf8(bytes).map_err(|_| "it printed no text".to_owned())
}

/// Says that the file of the keys can be read by others, if it can.
#[must_use]
pub fn keys_are_open() -> Option<String> {
    let path = std::env::var_os(FILE).filter(|value| !value.is_empty())?;
    let mode = std::fs::metadata(&path).ok()?.permissions().mode();
    let path = Path::new(&path).display();
    (mode & OTHERS != 0).then(|| {
        format!(
            "{path}: other users can read the keys of encrypted volumes (mode {:o}); chmod 600 keeps them out",
            mode & 0o777
        )
    })
}

/// Gives a volume that was opened its keys. With keys no volume is taken that is not encrypted:
/// whoever can write the bucket could make one that only looks like ours.
///
/// # Errors
/// [`Error::NoKey`], [`Error::NotEncrypted`], or what [`keys`] says.
pub(crate) fn unlock(url: &str, volume: &mut Volume) -> Result<(), Error> {
    let url = url.to_owned();
    match (volume.manifest().form.key, keys()?) {
        (None, None) => Ok(()),
        (None, Some(_)) => Err(Error::NotEncrypted { url }),
        (Some(key), Some(keys)) if keys.has(key) => {
            volume.use_keys(keys);
            Ok(())
        }
        (Some(key), _) => Err(Error::NoKey { url, key }),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_command_that_hangs_is_killed_with_what_it_started() {
        assert_eq!(printed(OsStr::new("echo word"), LIMIT), Ok("word\n".to_owned()));
        assert!(printed(OsStr::new("exit 3"), LIMIT).unwrap_err().contains("exit status: 3"));
        let folder = tempfile::tempdir().unwrap();
        let pids = folder.path().join("pids");
        let hangs = format!("sleep 1000 & echo $! > {}; wait", pids.display());
        assert!(printed(OsStr::new(&hangs), Duration::from_secs(2)).unwrap_err().contains("was killed"));
        let sleeper = std::fs::read_to_string(&pids).unwrap();
        let state = format!("/proc/{}/stat", sleeper.trim());
        // Whoever adopts it may not have buried it yet.
        let is_gone = || std::fs::read_to_string(&state).map_or(true, |it| it.contains(") Z "));
        while !is_gone() {
            std::thread::yield_now();
        }
    }
}
