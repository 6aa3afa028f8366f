// SPDX-License-Identifier: MIT OR Apache-2.0
//! A clean stop, step by step: asks those above to write, lets clients finish, closes the engine.
//!
//! Every step has a bound. So no client holds a stop, and no origin that refuses or hangs does. The
//! program that runs the daemon has a last bound, for calls that hang in the kernel.

use std::time::{Duration, Instant};

use flashfront_engine::{Control, DeviceError, Input, Status, Time};

use super::above::{Asking, Roots};
use super::held::Held;
use super::stop::StopHandle;
use crate::config::Config;
use crate::origin_errors::AllOriginErrors;
use crate::pump::Pump;
use crate::report::counted;

/// The longest that a turn waits when nothing happens.
const PATIENCE: Duration = Duration::from_secs(60);
/// The longest that a turn waits while the daemon leaves, so that the time of a step is not missed.
const PATIENCE_LEAVING: Duration = Duration::from_secs(1);

/// A stop does not wait longer than this for a device that ends no I/O.
///
/// A busy disk ends an I/O within a few seconds; the kernel itself gives a SCSI command 30 s.
const SILENT_MAX: Duration = Duration::from_secs(20);

/// A clean stop, from the wish for one to the engine's last checkpoint.
#[derive(Debug, Default)]
pub(super) struct Leaving {
    step: Step,
    /// The files and block devices that this daemon shows to this machine.
    roots: Roots,
    /// The clients that were still connected when they were told to go.
    clients: Vec<(String, u64)>,
}

/// How far a stop is.
#[derive(Debug, Default)]
enum Step {
    /// No stop was asked for.
    #[default]
    Not,
    /// File systems and programs above the volumes write what they hold, and are served meanwhile.
    Asking(Asking),
    /// Since this time requests in flight are finished, and no new ones are taken.
    Finishing { since: Time },
    /// The engine makes its last checkpoint. Clients were let go at this time.
    Closing { since: Time },
}

/// Clients and origins that were not as they should be when a daemon stopped.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Left {
    /// Clients that were still connected when they were told to go: their address, and how many.
    /// The daemon can't know what these clients had not written yet.
    pub clients: Vec<(String, u64)>,
    /// Volumes with dirty data that their origin refused to the end, and the error.
    pub refused: Vec<(String, DeviceError)>,
    /// Files of origins that have no name, and end with the daemon.
    pub lost: Vec<String>,
    /// Volumes with dirty data that another writer has opened, and that writer.
    pub overtaken: Vec<(String, String)>,
}

impl Leaving {
    /// Begins without a stop; `roots` is what the daemon shows to this machine.
    pub(super) fn new(roots: Roots) -> Self {
        Self { roots, ..Self::default() }
    }

    /// Takes the next step of a stop that was asked for; `Some(false)`: it can't be a clean one.
    pub(super) fn go_on(&mut self, stop: &StopHandle, pump: &mut Pump, held: &Held) -> Option<bool> {
        if stop.is_at_once() {
            tracing::warn!("stopping at once: requests in flight are not finished");
            return Some(false);
        }
        if let Step::Finishing { since } | Step::Closing { since } = self.step
            && let Some((device, silent)) = pump.devices().silent(pump.now(), since, SILENT_MAX)
        {
            tracing::error!(
                "{}: it has ended no I/O for {} s, and the stop does not wait for it any longer. What is dirty is safe in the cache; the next start replays the log",
                held.name(device),
                silent.as_secs()
            );
            stop.stop_at_once();
            return Some(false);
        }
        match &mut self.step {
            Step::Not => {
                if stop.is_asked() {
                    self.step = Step::Asking(Asking::begin(&self.roots, stop));
                    return self.go_on(stop, pump, held);
                }
            }
            Step::Asking(asking) => {
                if asking.is_over(Instant::now()) {
                    self.let_clients_go(pump);
                }
            }
            Step::Finishing { since } => {
                let since = *since;
                if pump.frontends_idle() {
                    self.step = Step::Closing { since };
                    pump.apply(Input::Control(Control::Stop));
                }
            }
            Step::Closing { .. } => {}
        }
        None
    }

    /// Lets the engine make its last checkpoint at once. Clients are held, and are to be handed
    /// over.
    pub(super) fn close_engine(&mut self, pump: &mut Pump) {
        self.step = Step::Closing { since: pump.now() };
        pump.apply(Input::Control(Control::LetClientsGo));
        pump.apply(Input::Control(Control::Stop));
    }

    /// How long a turn may wait at most, so that a step's time is not missed.
    pub(super) const fn patience(&self) -> Duration {
        match self.step {
            Step::Not => PATIENCE,
            Step::Asking(_) | Step::Finishing { .. } | Step::Closing { .. } => PATIENCE_LEAVING,
        }
    }

    fn let_clients_go(&mut self, pump: &mut Pump) {
        self.clients = pump.holders();
        for (place, count) in &self.clients {
            tracing::warn!(
                "{place}: {} still there; what they have not written yet is not known here",
                counted(*count, "client")
            );
        }
        tracing::info!("stopping: finishing what is in flight");
        self.step = Step::Finishing { since: pump.now() };
        pump.apply(Input::Control(Control::LetClientsGo));
        pump.stop_frontends();
    }

    /// Returns what was not as it should be: clients that were still there, and origins that still
    /// refuse their dirty data.
    pub(super) fn left(self, config: &Config, errors: &AllOriginErrors, status: &Status) -> Left {
        let refused = status.origins.iter().filter_map(|origin| {
            let (volume, why) = (config.volume(origin.id)?, errors.why(origin.id, status.counters.destaged_blocks)?);
            (origin.blocks_dirty > 0).then(|| (volume.name.clone(), why))
        });
        Left { refused: refused.collect(), clients: self.clients, lost: Vec::new(), overtaken: Vec::new() }
    }
}
