// SPDX-License-Identifier: MIT OR Apache-2.0
//! The keys of encrypted volumes: from a file, or from what a command prints. The environment names
//! which. Keys are never part of a command line, a log or a configuration.

use std::process::{Command, Stdio};

use flashfront_object::{Keys, Volume};

use crate::error::Error;

/// Names a file with keys.
const FILE: &str = "FLASHFRONT_OBJECT_KEYS";
/// A command that prints them.
const COMMAND: &str = "FLASHFRONT_OBJECT_KEYS_COMMAND";

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
            let output =
                Command::new("sh").arg("-c").arg(command).stdin(Stdio::null()).stderr(Stdio::inherit()).output();
            let output = output.map_err(|error| failed(from.clone(), error.to_string()))?;
            if !output.status.success() {
                return Err(failed(from, format!("it ended with {}", output.status)));
            }
            let text = String::from_utf8(output.stdout);
            (from.clone(), text.map_err(|_| failed(from, "it printed no text".to_owned()))?)
        }
    };
    let parsed = Keys::parse(&text).map_err(|line| match line {
        0 => failed(from.clone(), "there is no key in it".to_owned()),
        line => failed(from.clone(), format!("line {line} is no key")),
    });
    parsed.map(Some)
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
