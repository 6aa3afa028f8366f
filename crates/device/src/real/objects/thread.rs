// SPDX-License-Identifier: MIT OR Apache-2.0
//! The thread of a volume: brings tasks and answers to its session, and sleeps between.

use std::sync::PoisonError;
use std::time::{Duration, Instant};

use super::session::Session;
use super::{Inbox, Shared};
use crate::real::remote::locked;

/// What a store has for the last manifest.
const LEAVE: Duration = Duration::from_secs(5);

/// Works until the device is closed.
pub(super) fn run(mut session: Session) {
    loop {
        let Inbox { tasks, forgotten, opened, settling, owes, stopping, .. } = wait(session.shared(), None);
        for owner in forgotten {
            session.forget(owner);
        }
        if let Some((volume, carrier, taken)) = opened {
            session.take_over(volume, carrier);
            // Whoever waited may be gone.
            let _ = taken.send(());
        }
        owes.into_iter().for_each(|owes| session.owe(owes));
        if settling {
            session.settle();
        }
        session.take_answers();
        tasks.into_iter().for_each(|task| session.begin(task));
        session.work();
        if stopping {
            return leave(session);
        }
    }
}

/// Sleeps until something was brought, or until a time.
fn wait(shared: &Shared, until: Option<Instant>) -> Inbox {
    let mut inbox = locked(&shared.inbox);
    while !inbox.is_awake {
        inbox = match until.map(|it| it.saturating_duration_since(Instant::now())) {
            Some(Duration::ZERO) => break,
            Some(left) => shared.changed.wait_timeout(inbox, left).unwrap_or_else(PoisonError::into_inner).0,
            None => shared.changed.wait(inbox).unwrap_or_else(PoisonError::into_inner),
        };
    }
    let stopping = inbox.stopping;
    let brought = std::mem::take(&mut *inbox);
    inbox.stopping = stopping;
    brought
}

/// Says in the store that no writer has the volume open, if that can be done soon.
fn leave(mut session: Session) {
    let until = Instant::now() + LEAVE;
    session.close();
    while session.is_closing() && Instant::now() < until {
        drop(wait(session.shared(), Some(until)));
        session.take_answers();
        session.work();
    }
    session.abandon();
}
