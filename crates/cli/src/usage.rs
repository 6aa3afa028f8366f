// SPDX-License-Identifier: MIT OR Apache-2.0
//! Wrong usage that shows only when options are seen together; the exit code is clap's, 2.

use std::fmt;

use flashfront_serve::config::ConfigError;
use flashfront_serve::daemon::ServeError;

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
    let found_out = |error: &ConfigError| matches!(error, ConfigError::Read { .. } | ConfigError::Resolve { .. });
    error.is::<Usage>() || config.is_some_and(|error| !found_out(error))
}
