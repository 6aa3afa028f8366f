// SPDX-License-Identifier: MIT OR Apache-2.0
//! How far an upgrade is, and who had the clients before this life of the daemon.

use std::path::PathBuf;
use std::sync::mpsc::Receiver;
use std::time::{Duration, Instant};

use super::end::Ended;
use super::error::ServeError;
use super::front::Front;
use super::switch::Switch;
use crate::config::{Config, Volume};
use crate::control::Response;
use crate::upgrade::{Channel, Operator, Parcel, Predecessor, Successor, Upgraded, ms_since};

/// How long requests that were taken may take to be finished. Clients wait meanwhile.
pub(super) const HOLD_MAX: Duration = Duration::from_secs(2);

/// How far an upgrade is.
#[derive(Debug, Default)]
pub(super) enum Upgrading {
    /// None was asked for.
    #[default]
    Not,
    /// The new program starts, and judges what there is. Clients are served.
    Starting { started: Receiver<Result<To, String>>, disconnect: bool, operator: Operator },
    /// Clients are held; what they have asked for is finished.
    Holding { since: Instant, held_ns: u64, handing: Handing },
    /// The engine makes its last checkpoint.
    Closing(Handing),
}

/// The successor, which gets everything.
#[derive(Debug)]
pub(super) enum To {
    Program(Successor),
    /// This process, in another life.
    Itself(Switch),
}

/// Everything that is to be given away.
#[derive(Debug)]
pub(super) struct Handing {
    pub(super) operator: Operator,
    pub(super) disconnect: bool,
    pub(super) to: To,
    pub(super) parcel: Parcel,
    pub(super) served: Served,
}

/// What is served, and from where, at the end of a life.
#[derive(Debug, Default)]
pub(super) struct Served {
    cache: PathBuf,
    mirror: Option<PathBuf>,
    volumes: Vec<Volume>,
}

impl Served {
    pub(super) fn of(config: &Config) -> Self {
        Self { cache: config.cache.clone(), mirror: config.mirror.clone(), volumes: config.volumes.clone() }
    }

    /// Should this process come back, it goes on with that. What it was started with may name
    /// devices that the cache has left, and volumes that have another name by now.
    pub(super) fn into_config(self, config: &mut Config) {
        config.move_to(self.cache, self.mirror);
        config.volumes = self.volumes;
    }
}

/// How a daemon's life began: who had the clients before.
#[derive(Debug)]
pub(super) enum Before {
    /// No one.
    Nobody,
    /// Another daemon, which waits for this one.
    Another(Predecessor, Parcel),
    /// This process, which goes on without its cache, with one again, or with one of another size.
    Switched { parcel: Parcel, operator: Operator, switch: Switch },
    /// This process, whose successor failed.
    Itself { parcel: Parcel, operator: Operator, why: String },
}

impl Before {
    pub(super) fn parcel(&self) -> Option<&Parcel> {
        match self {
            Self::Nobody => None,
            Self::Another(_, parcel) | Self::Switched { parcel, .. } | Self::Itself { parcel, .. } => Some(parcel),
        }
    }

    /// A successor has opened the cache, and waits for the word of the daemon before it.
    pub(super) fn hear_go(&mut self) -> Result<(), ServeError> {
        match self {
            Self::Another(predecessor, _) => predecessor.wait_for_go().map_err(ServeError::Upgrade),
            Self::Switched { switch, .. } => switch.lets_go().map_err(ServeError::Detach),
            Self::Nobody | Self::Itself { .. } => Ok(()),
        }
    }
}

/// Tells those who wait that this daemon serves.
pub(super) fn begun(before: Before, front: &mut Option<Channel>) {
    match before {
        Before::Nobody => {}
        Before::Another(predecessor, parcel) => *front = Some(predecessor.serves(&parcel)),
        Before::Switched { parcel, operator, switch } => switch.is_done(&parcel, operator),
        Before::Itself { parcel, operator, why } => {
            let waited = ms_since(parcel.state.held_ns);
            refuse(
                operator,
                format!("{why}. The daemon serves on; clients waited {waited} ms, and nothing was changed"),
            );
        }
    }
}

/// Tells those who wait that this daemon can't serve.
pub(super) fn failed(before: Before, error: &ServeError) {
    match before {
        Before::Nobody => {}
        Before::Another(mut predecessor, _) => predecessor.fails(error.to_string()),
        Before::Switched { operator, .. } => refuse(operator, error.to_string()),
        Before::Itself { operator, why, .. } => {
            refuse(operator, format!("{why}. The daemon could not open its cache again, and ends: {error}"));
        }
    }
}

/// How giving everything away ended.
pub(super) enum Given {
    Away {
        upgraded: Upgraded,
        front: Front,
        operator: Operator,
    },
    /// The clients are this process's again.
    Back {
        parcel: Parcel,
        operator: Operator,
        why: String,
    },
    /// This process goes on, in another way.
    Switched {
        parcel: Parcel,
        operator: Operator,
        switch: Switch,
    },
}

impl Handing {
    /// Gives everything to the new program, after the cache was closed.
    pub(super) fn give(self, closed: Result<Ended, ServeError>, takes_over: impl Fn(u32)) -> Given {
        let Self { operator, to, parcel, .. } = self;
        let successor = match (to, &closed) {
            (To::Program(successor), _) => successor,
            (To::Itself(switch), Ok(Ended::Clean { blocks_dirty: 0, .. } | Ended::WithoutCache { .. })) => {
                return Given::Switched { parcel, operator, switch };
            }
            (To::Itself(switch), Ok(Ended::Clean { .. })) if switch.may_be_dirty() => {
                return Given::Switched { parcel, operator, switch };
            }
            (To::Itself(_), _) => {
                return Given::Back { parcel, operator, why: format!("the cache was not closed cleanly: {closed:?}") };
            }
        };
        let why = match closed {
            Ok(Ended::Clean { .. } | Ended::WithoutCache { .. }) => match successor.give(&parcel, &takes_over) {
                Ok((upgraded, channel)) => {
                    let front = Front::of(upgraded.pid, channel);
                    return Given::Away { upgraded, front, operator };
                }
                Err(why) => {
                    takes_over(std::process::id());
                    why
                }
            },
            Ok(other) => {
                drop(successor);
                format!("the cache was not closed cleanly: {other:?}")
            }
            Err(error) => {
                drop(successor);
                format!("the cache was not closed cleanly: {error}")
            }
        };
        Given::Back { parcel, operator, why }
    }
}

impl Upgrading {
    /// How long a turn may wait at most, so that the end of the hold is not missed.
    pub(super) fn patience(&self) -> Duration {
        match self {
            Self::Holding { since, .. } => HOLD_MAX.saturating_sub(since.elapsed()),
            Self::Not | Self::Starting { .. } | Self::Closing(_) => Duration::MAX,
        }
    }

    /// What is to be given away, if the engine was closed for that.
    pub(super) fn take(&mut self) -> Option<Handing> {
        match std::mem::take(self) {
            Self::Closing(handing) => Some(handing),
            _ => None,
        }
    }
}

/// Says that nothing was changed, and why, to the operator and in the log.
pub(super) fn refuse(operator: Operator, why: String) {
    tracing::error!("upgrade: {why}");
    operator.answer(&Response::Error { message: why });
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_daemon_that_comes_back_goes_on_with_volumes_as_they_are_named_now() {
        let mut started = Config::new("/cache".into());
        started.volumes.push(Volume::new("data", "/origin".into()));
        let mut now = started.clone();
        now.move_to("/new".into(), None);
        now.volumes = vec![Volume::new("date", "/origin".into()), Volume::new("more", "/other".into())];
        Served::of(&now).into_config(&mut started);
        assert_eq!((started.cache.to_str(), started.volumes), (Some("/new"), now.volumes));
    }
}
