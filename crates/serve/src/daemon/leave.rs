// SPDX-License-Identifier: MIT OR Apache-2.0
//! A clean stop, step by step: asks those above to write, lets clients finish, closes the engine.
//!
//! Every step has a bound, so that neither an origin that refuses or hangs nor a client holds a
//! stop. The program that runs the daemon has a last one, for what hangs in the kernel.

use std::time::{Duration, Instant};

use flashfront_engine::{Control, DeviceError, Input, Time};

use super::Daemon;
use super::above::Asking;
use super::error::ServeError;
use crate::report::counted;

/// A device that ends no I/O for so long while the daemon stops is not waited for. A disk that is
/// busy ends one within a few seconds; the kernel itself gives a SCSI command 30 s.
const SILENT_MAX: Duration = Duration::from_secs(20);

/// How far a stop is.
#[derive(Debug, Default)]
pub(super) enum Leaving {
    /// Nobody has asked for one.
    #[default]
    Not,
    /// Those above write what they hold, and are served meanwhile.
    Asking(Asking),
    /// Clients are answered, and come no more, since then.
    Finishing { since: Time },
    /// The engine makes its last checkpoint. Clients were let go then.
    Closing { since: Time },
}

/// What was not as it should be when a daemon stopped.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Left {
    /// Where clients were still connected when they were told to go, and how many. What they had
    /// not written yet is not known here.
    pub clients: Vec<(String, u64)>,
    /// Origins that refused their dirty data to the end, by volume, and why.
    pub refused: Vec<(String, DeviceError)>,
}

impl Daemon<'_> {
    /// Takes the next step of a stop that was asked for; `Some(false)`: it can't be a clean one.
    pub(super) fn go_on_leaving(&mut self) -> Result<Option<bool>, ServeError> {
        if self.stop.is_at_once() {
            tracing::warn!("stopping at once: requests in flight are not finished");
            return Ok(Some(false));
        }
        if let Leaving::Finishing { since } | Leaving::Closing { since } = self.leaving
            && let Some((device, silent)) = self.pump.silent(since, SILENT_MAX)
        {
            tracing::error!(
                "{}: it has ended no I/O for {} s, and the stop does not wait for it any longer. What is dirty is safe in the cache; the next start replays the log",
                self.device(device),
                silent.as_secs()
            );
            self.stop.stop_at_once();
            return Ok(Some(false));
        }
        match &mut self.leaving {
            Leaving::Not => {
                if self.stop.is_asked() {
                    self.leaving = Leaving::Asking(Asking::begin(&self.roots, &self.stop));
                    return self.go_on_leaving();
                }
            }
            Leaving::Asking(asking) => {
                if asking.is_over(Instant::now()) {
                    self.let_clients_go();
                }
            }
            Leaving::Finishing { since } => {
                let since = *since;
                if self.pump.frontends_idle() {
                    self.leaving = Leaving::Closing { since };
                    self.pump.apply(Input::Control(Control::Stop));
                }
            }
            Leaving::Closing { .. } => {}
        }
        Ok(None)
    }

    /// How long a turn may wait at most, so that a step's time is not missed.
    pub(super) fn patience(&self) -> Duration {
        match &self.leaving {
            Leaving::Not => super::PATIENCE,
            Leaving::Asking(_) | Leaving::Finishing { .. } | Leaving::Closing { .. } => Duration::from_secs(1),
        }
    }

    fn let_clients_go(&mut self) {
        self.left.clients = self.pump.holders();
        for (place, count) in &self.left.clients {
            tracing::warn!(
                "{place}: {} still there; what they have not written yet is not known here",
                counted(*count, "client")
            );
        }
        tracing::info!("stopping: finishing what is in flight");
        self.leaving = Leaving::Finishing { since: self.pump.now() };
        self.pump.apply(Input::Control(Control::LetClientsGo));
        self.pump.stop_frontends();
    }

    /// Notes what origins still refuse, for the last words.
    pub(super) fn note_refusals(&mut self) {
        let status = self.pump.engine().status();
        let refused = |(origin, volume): (&flashfront_engine::OriginStatus, &crate::config::Volume)| {
            let why = self.origin_errors.why(origin.id, status.counters.destaged_blocks)?;
            (origin.blocks_dirty > 0).then(|| (volume.name.clone(), why))
        };
        self.left.refused = status.origins.iter().zip(&self.config.volumes).filter_map(refused).collect();
    }
}
