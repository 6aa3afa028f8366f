// SPDX-License-Identifier: MIT OR Apache-2.0
//! A GET that is slow is asked for a second time, and the first answer wins.
//!
//! Stores answer one request of many late, and the same request sent again is then faster. J. Dean
//! and L. A. Barroso call this a hedged request ("The Tail at Scale", CACM 56(2), 2013). A GET is
//! slow when it takes longer than 99 of 100 did lately. The meter bounds
//! the number of second GETs.

use std::pin::pin;

use futures_util::future::{Either, select};

use crate::meter::Meter;

/// Asks, and asks once more if that takes long. The answer that comes later is dropped.
pub(crate) async fn hedged<T, E, F: Future<Output = Result<T, E>>>(meter: &Meter, get: impl Fn() -> F) -> Result<T, E> {
    let Some(after) = meter.slow_after() else { return get().await };
    let mut first = pin!(get());
    if let Either::Left((answer, _)) = select(first.as_mut(), pin!(tokio::time::sleep(after))).await {
        return answer;
    }
    if !meter.may_hedge() {
        return first.await;
    }
    match select(first, pin!(get())).await {
        Either::Left((Err(_), other)) => other.await,
        Either::Right((Err(_), other)) => other.await,
        Either::Left((answer, _)) | Either::Right((answer, _)) => answer,
    }
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;
    use std::time::Duration;

    use super::*;
    use crate::meter::Verb;

    fn run<T>(future: impl Future<Output = T>) -> T {
        tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap().block_on(future)
    }

    fn meter() -> Meter {
        let meter = Meter::default();
        (0..200).for_each(|_| meter.ended(Verb::Get, Duration::from_millis(1), Ok((1, 4096))));
        meter
    }

    /// The first GET is never answered. Nothing would end if nobody asked again.
    #[test]
    fn a_get_that_hangs_is_asked_for_once_more() {
        let (meter, asked) = (meter(), Cell::new(0));
        let get = || {
            asked.set(asked.get() + 1);
            let nth = asked.get();
            async move { if nth == 1 { std::future::pending().await } else { Ok::<_, ()>(nth) } }
        };
        assert_eq!(run(hedged(&meter, get)), Ok(2));
        let [get, ..] = meter.tallies();
        assert_eq!((get.hedged, get.requests), (1, 201));
    }

    /// If one of the two fails, the other one is waited for.
    #[test]
    fn a_failure_is_not_the_first_answer() {
        let (meter, asked) = (meter(), Cell::new(0));
        let (tell, told) = std::sync::mpsc::channel();
        let told = Cell::new(Some(told));
        let get = || {
            asked.set(asked.get() + 1);
            let (nth, tell, told) = (asked.get(), tell.clone(), told.take());
            async move {
                if nth == 2 {
                    tell.send(()).unwrap();
                    return Err("the second one fails");
                }
                while told.as_ref().is_some_and(|it| it.try_recv().is_err()) {
                    tokio::task::yield_now().await;
                }
                Ok(nth)
            }
        };
        assert_eq!(run(hedged(&meter, get)), Ok(1));
    }

    #[test]
    fn few_requests_are_sent_twice() {
        let meter = meter();
        let hedged = (0..100).filter(|_| meter.may_hedge()).count();
        assert_eq!(hedged, 10, "5 % of 200, and of these");
        assert_eq!(Meter::default().slow_after(), None, "nothing is known yet");
    }
}
