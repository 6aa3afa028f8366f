// SPDX-License-Identifier: MIT OR Apache-2.0
//! Ctrl-C and SIGTERM as a value that can be waited for.

use std::sync::mpsc::{self, Receiver, RecvTimeoutError};
use std::time::Duration;

use anyhow::Context;
use signal_hook::consts::{SIGINT, SIGTERM};
use signal_hook::iterator::Signals;

/// Calls `heard` for every SIGINT and SIGTERM from now on, in a thread of its own.
pub(crate) fn on_signal(mut heard: impl FnMut() + Send + 'static) -> anyhow::Result<()> {
    let mut signals = Signals::new([SIGINT, SIGTERM]).context("can't listen to signals")?;
    std::thread::Builder::new()
        .name("signals".to_owned())
        .spawn(move || signals.forever().for_each(|_| heard()))
        .context("can't start a thread")?;
    Ok(())
}

/// The first signal ends the waits.
pub(crate) struct Interrupt(Receiver<()>);

impl Interrupt {
    /// Takes the signals over.
    pub(crate) fn new() -> anyhow::Result<Self> {
        let (heard, receiver) = mpsc::channel();
        on_signal(move || {
            // Nobody waits any more: the command is about to end.
            let _ = heard.send(());
        })?;
        Ok(Self(receiver))
    }

    /// Waits for a signal, at most so long; true if there was one.
    pub(crate) fn wait(&self, at_most: Duration) -> bool {
        !matches!(self.0.recv_timeout(at_most), Err(RecvTimeoutError::Timeout))
    }
}
