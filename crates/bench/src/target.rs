// SPDX-License-Identifier: MIT OR Apache-2.0
//! Targets as the user names them: `[NAME=]WHAT`.

use std::os::unix::fs::FileTypeExt;
use std::path::{Path, PathBuf};

use flashfront_engine::Mode;

use crate::error::BenchError;

/// Something to measure.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TargetSpec {
    /// The name in tables.
    pub name: String,
    /// The target as the user wrote it.
    pub text: String,
    /// The meaning of that text.
    pub what: What,
}

/// Kinds of targets.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum What {
    /// A block device.
    Device(PathBuf),
    /// A file: there already, or to be made.
    File {
        /// The path.
        path: PathBuf,
        /// Whether it is there already.
        exists: bool,
    },
    /// An export of an NBD server.
    Nbd(String),
    /// A folder of a mounted file system.
    Folder(PathBuf),
    /// A Flashfront volume that is made for each turn, in this mode.
    Fresh(Mode),
}

impl TargetSpec {
    /// Reads `[NAME=]WHAT`.
    ///
    /// # Errors
    /// It is none of the kinds.
    pub fn parse(text: &str) -> Result<Self, BenchError> {
        let (name, text) = match text.split_once('=') {
            Some((name, rest)) if is_name(name) => (Some(name), rest),
            _ => (None, text),
        };
        let what = What::parse(text)?;
        let name = name.map_or_else(|| text.to_owned(), str::to_owned);
        Ok(Self { name, text: text.to_owned(), what })
    }
}

impl What {
    fn parse(text: &str) -> Result<Self, BenchError> {
        if let Some(mode) = text.strip_prefix("fresh").filter(|it| it.is_empty() || it.starts_with(':')) {
            let mode = mode.strip_prefix(':');
            let known = Mode::from_name;
            return mode.map_or(Some(Mode::default()), known).map(Self::Fresh).ok_or_else(|| {
                let all = Mode::ALL.map(|mode| format!("fresh:{}", mode.name())).join(", ");
                BenchError::Wrong(format!("--target {text}: no such mode; expected fresh, or one of {all}"))
            });
        }
        if ["nbd:", "nbds:", "nbd+unix:", "nbds+unix:"].iter().any(|scheme| text.starts_with(scheme)) {
            return Ok(Self::Nbd(text.to_owned()));
        }
        let path = PathBuf::from(text);
        match std::fs::metadata(&path) {
            Ok(meta) if meta.file_type().is_block_device() => Ok(Self::Device(path)),
            Ok(meta) if meta.is_dir() => Ok(Self::Folder(path)),
            Ok(meta) if meta.is_file() => Ok(Self::File { path, exists: true }),
            Ok(_) => Err(BenchError::Wrong(format!(
                "--target {text}: expected a block device, a file, a folder, an NBD URI or `fresh`; it is none of them"
            ))),
            Err(error) if error.kind() == std::io::ErrorKind::NotFound && may_be_made(&path) => {
                Ok(Self::File { path, exists: false })
            }
            Err(error) => Err(BenchError::Failed(format!("--target {text}: {error}"))),
        }
    }
}

/// A file can be made in a folder that is there, but not in /dev, where a device is missing.
fn may_be_made(path: &Path) -> bool {
    let folder = path.parent().map(|it| if it.as_os_str().is_empty() { Path::new(".") } else { it });
    let folder = folder.and_then(|it| it.canonicalize().ok());
    path.file_name().is_some()
        && folder.is_some_and(|it| it.is_dir() && !it.starts_with("/dev") || it.starts_with("/dev/shm"))
}

/// Letters, digits and few signs: neither a path nor a URI has these alone before its first `=`.
fn is_name(text: &str) -> bool {
    !text.is_empty() && text.chars().all(|it| it.is_alphanumeric() || " ._-".contains(it))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(text: &str) -> TargetSpec {
        TargetSpec::parse(text).unwrap_or_else(|error| panic!("{text}: {error}"))
    }

    #[test]
    fn a_target_is_recognised() {
        let uri = "nbd+unix:///?socket=/run/a=b.sock";
        assert_eq!((parse(uri).name.as_str(), parse(uri).what), (uri, What::Nbd(uri.to_owned())));
        let named = parse(&format!("my ssd={uri}"));
        assert_eq!((named.name.as_str(), named.text.as_str()), ("my ssd", uri));
        assert_eq!(parse("fresh").what, What::Fresh(Mode::default()));
        assert_eq!(parse("disk=fresh:passthrough").what, What::Fresh(Mode::Passthrough));
        assert_eq!(parse("/tmp").what, What::Folder("/tmp".into()));
        assert_eq!(parse("x=/tmp/none-such").what, What::File { path: "/tmp/none-such".into(), exists: false });
        let odd = parse("/tmp/a=b");
        assert_eq!((odd.name.as_str(), odd.text.as_str()), ("/tmp/a=b", "/tmp/a=b"), "a path may hold =");
    }

    #[test]
    fn what_is_none_is_refused() {
        for (text, why) in [
            ("fresh:best", "no such mode"),
            ("/dev/null", "none of them"),
            ("/dev/sdzz9", "No such file"),
            ("/nowhere/at/all", "No such file"),
        ] {
            let error = TargetSpec::parse(text).unwrap_err().to_string();
            assert!(error.contains(why), "{text}: {error}");
        }
    }
}
