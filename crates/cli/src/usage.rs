// SPDX-License-Identifier: MIT OR Apache-2.0
//! Wrong usage that shows only when options are seen together; the exit code is clap's, 2.

use std::fmt;

use flashfront_serve::config::ConfigError;
use flashfront_serve::daemon::{MemoryError, OriginsError, ServeError};
use flashfront_serve::offline::{FormatError, LayoutError};
use flashfront_sim::load::fio::FioError;

/// What is wrong.
#[derive(Debug)]
pub(crate) struct Usage(pub(crate) String);

impl fmt::Display for Usage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for Usage {}

/// Ends a function with a [`Usage`], formatted.
macro_rules! misused {
    ($($message:tt)*) => {
        return Err($crate::usage::Usage(format!($($message)*)).into())
    };
}
pub(crate) use misused;

/// Whether what was asked for makes no sense, whatever there is on this machine.
pub(crate) fn is_wrong(error: &anyhow::Error) -> bool {
    let config = match error.downcast_ref::<ServeError>() {
        Some(ServeError::Config(error)) => Some(error),
        _ => error.downcast_ref::<ConfigError>(),
    };
    let impossible = matches!(
        error.downcast_ref::<FormatError>(),
        Some(
            FormatError::BadName(_)
                | FormatError::Layout { error: LayoutError::Segment(_) | LayoutError::Lanes(_), .. }
        )
    );
    let found_out = |error: &ConfigError| match error {
        ConfigError::File(error) => error.may_pass(),
        error => matches!(error, ConfigError::Resolve { .. }),
    };
    error.is::<Usage>()
        || error.is::<FioError>()
        || impossible
        || config.is_some_and(|error| !found_out(error))
        || error.downcast_ref::<ServeError>().is_some_and(is_for_another)
}

/// Whether the configuration is for another machine or another cache than these. Only an operator
/// can change that. A unit is not to try again.
fn is_for_another(error: &ServeError) -> bool {
    match error {
        // Another unit may give the kernel huge pages.
        ServeError::Memory(error) => !matches!(error, MemoryError::NoHugePages { .. }),
        ServeError::Origins(error) => matches!(
            error,
            OriginsError::Volumes { .. }
                | OriginsError::VolumeCount { .. }
                | OriginsError::NoSuchVolume { .. }
                | OriginsError::Shares { .. }
        ),
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_makes_no_sense_is_told_from_what_is_not_there() {
        let missing = flashfront_serve::config::Config::read(std::path::Path::new("/nowhere.toml")).unwrap_err();
        assert!(!is_wrong(&missing.into()), "it may be there tomorrow");
        assert!(is_wrong(&Usage("--this without --that".to_owned()).into()));
        assert!(is_wrong(&ServeError::from(ConfigError::LaneThreads(0)).into()));
        assert!(is_wrong(&FormatError::BadName("a b".to_owned()).into()));
        assert!(is_wrong(&ServeError::from(MemoryError::IdleLaneThreads { given: 3, lanes: 2 }).into()));
        assert!(!is_wrong(&ServeError::from(MemoryError::NoHugePages { setting: "x" }).into()), "that may change");
        assert!(!is_wrong(&ServeError::from(OriginsError::Detached("/c".into())).into()));
        assert!(!is_wrong(&anyhow::anyhow!("no space left")));
    }
}
