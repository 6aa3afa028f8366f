// SPDX-License-Identifier: MIT OR Apache-2.0
//! Runs jobs on a system until they are over, and notes the answers and their times.

use flashfront_engine::{BLOCK_BYTES, REQUEST_BYTES_MAX, Time};
use hashbrown::HashMap;
use hdrhistogram::Histogram;

use super::job::Job;
use super::requests::{Ask, Requests};
use super::result::{Interval, JobResult, PhaseResult};
use super::settled::has_settled;
use crate::system::{self, System, SystemRequest};

/// The number of answered bytes after which `watch` is asked: some hundredths of a second. `watch`
/// is also asked at the end of each interval.
const WATCH_BYTES: u64 = 64 << 20;
/// The bytes that a second counts for in a job that ends by time.
const WORK_BYTES_PER_S: u64 = 64 << 20;

/// The number of events between two questions to `watch` while nothing is answered.
const WATCH_EVENTS: u64 = 1 << 14;

/// Latencies from 1 us to 20 min, to 1 in 100.
fn latencies() -> Histogram<u64> {
    Histogram::new_with_bounds(1_000, 1_200_000_000_000, 2).expect("bounds that a histogram takes")
}

struct Flying {
    job: usize,
    worker: usize,
    since: Time,
    ask: Ask,
    /// Parts that are not answered.
    parts: u32,
}

struct Running {
    requests: Requests,
    idle: Vec<usize>,
    result: JobResult,
    /// The earliest moment of a closed job's next request, in nanoseconds after the phase's
    /// beginning.
    not_before_ns: u64,
    /// Answers since the job's last pause.
    since_pause: u32,
    /// The job's figures count from this moment, in nanoseconds after the phase's beginning.
    counts_from_ns: u64,
    /// Whether the job's figures don't count yet.
    ramping: bool,
    /// The bytes of this interval.
    read_bytes: u64,
    write_bytes: u64,
}

struct Run<'a> {
    system: &'a mut dyn System,
    begin: Time,
    now: Time,
    jobs: Vec<Running>,
    /// Requests in flight, by the number of their first part.
    flying: HashMap<u64, Flying>,
    /// The first part of each further part.
    parts: HashMap<u64, u64>,
    next_number: &'a mut u64,
    answered_bytes: u64,
    /// The part of the work that `watch` has been told.
    told_bytes: u64,
    /// Whether nothing changes any more. Then no more requests are sent.
    settled: bool,
}

/// The work of a phase, for a progress bar. A job that ends by bytes counts its bytes. A job that
/// ends by time counts a number of bytes for each second.
#[must_use]
pub fn work_bytes(jobs: &[Job]) -> u64 {
    let all_background = jobs.iter().all(|job| job.background);
    let awaited = jobs.iter().filter(|job| is_awaited(job, all_background));
    awaited.map(|job| job_work_bytes(job, job.total_bytes, job.start_ns.saturating_add(job.time_ns))).sum()
}

/// The work that a job has done when it has asked for `bytes` bytes, or the phase has run for `ns`
/// nanoseconds.
fn job_work_bytes(job: &Job, bytes: u64, ns: u64) -> u64 {
    if job.total_bytes > 0 {
        bytes.min(job.total_bytes)
    } else {
        (u128::from(ns.saturating_sub(job.start_ns).min(job.time_ns)) * u128::from(WORK_BYTES_PER_S) / 1_000_000_000)
            as u64
    }
}

/// Whether a phase waits for the end of a job. It waits for a job in the background only if there
/// are no other jobs.
fn is_awaited(job: &Job, all_background: bool) -> bool {
    all_background || !job.background
}

/// Runs jobs on a system from `now` on. It ends when all jobs that aren't in the background are
/// over and answered, and sets `now` to that moment. `next_number` goes on from one phase of a
/// system to the next. Every now and then `watch` gets the work done meanwhile; [`work_bytes`] is
/// the sum. Returns `None` if `watch` says to stop.
pub fn run(
    system: &mut dyn System,
    now: &mut Time,
    next_number: &mut u64,
    jobs: &[Job],
    interval_ns: u64,
    watch: &mut dyn FnMut(u64) -> bool,
) -> Option<PhaseResult> {
    let (before, work) = (system.traffic(), work_bytes(jobs));
    let job = |job: &Job| Running {
        requests: Requests::new(job),
        idle: (0..job.depth.max(1) as usize).rev().collect(),
        result: JobResult {
            name: job.name.clone(),
            time_ns: 0,
            reads: 0,
            writes: 0,
            flushes: 0,
            read_bytes: 0,
            write_bytes: 0,
            read_ns: latencies(),
            write_ns: latencies(),
            flush_ns: latencies(),
        },
        not_before_ns: job.start_ns,
        since_pause: 0,
        counts_from_ns: job.start_ns.saturating_add(job.ramp_ns),
        ramping: job.ramp_ns > 0,
        read_bytes: 0,
        write_bytes: 0,
    };
    let jobs = jobs.iter().map(job).collect();
    let mut run = Run {
        system,
        begin: *now,
        now: *now,
        jobs,
        flying: HashMap::new(),
        parts: HashMap::new(),
        next_number,
        answered_bytes: 0,
        told_bytes: 0,
        settled: false,
    };
    let mut series = Vec::new();
    let mut answered = Vec::new();
    let mut next_interval = interval_ns;
    while !run.over() {
        run.ask();
        let next = [run.system.next_event(), run.next_arrival()].into_iter().flatten().min();
        let next = next.expect("a system answers in the end").max(run.now);
        while next.since_ns(run.begin) >= next_interval {
            series.push(run.interval(next_interval));
            run.settled |= run.can_settle() && has_settled(&series);
            next_interval += interval_ns;
            if !watch(run.work_done()) {
                return None;
            }
        }
        if run.answered_bytes >= WATCH_BYTES && !watch(run.work_done()) {
            return None;
        }
        run.now = next;
        run.system.advance(next, &mut answered);
        answered.drain(..).for_each(|number| run.answered(number));
    }
    *now = run.now;
    let time_ns = run.now.since_ns(run.begin);
    series.push(run.interval(time_ns));
    watch(work.saturating_sub(run.told_bytes));
    let after = run.system.traffic();
    let planned_ns = run.jobs.iter().map(|job| job.requests.job.time_ns).max().unwrap_or(0);
    let unsimulated_ns = if run.settled { planned_ns.saturating_sub(time_ns) } else { 0 };
    let jobs = together(run.jobs.into_iter().map(|job| job.result));
    Some(PhaseResult { time_ns, jobs, series, before, after, unsimulated_ns })
}

/// Merges the results of clones, that is, of jobs with the same name.
fn together(results: impl Iterator<Item = JobResult>) -> Vec<JobResult> {
    let mut all: Vec<JobResult> = Vec::new();
    for it in results {
        let Some(job) = all.iter_mut().find(|job| job.name == it.name) else {
            all.push(it);
            continue;
        };
        job.time_ns = job.time_ns.max(it.time_ns);
        job.reads += it.reads;
        job.writes += it.writes;
        job.flushes += it.flushes;
        job.read_bytes += it.read_bytes;
        job.write_bytes += it.write_bytes;
        for (to, from) in
            [(&mut job.read_ns, it.read_ns), (&mut job.write_ns, it.write_ns), (&mut job.flush_ns, it.flush_ns)]
        {
            to.add(from).expect("they have the same bounds");
        }
    }
    all
}

/// Lets time pass without a request. Returns `None` if `watch` says to stop.
pub fn idle(system: &mut dyn System, now: &mut Time, ns: u64, watch: &mut dyn FnMut(u64) -> bool) -> Option<()> {
    let end = now.plus_ns(ns);
    let (mut answered, mut events) = (Vec::new(), 0_u64);
    while let Some(next) = system.next_event().filter(|next| *next <= end) {
        system.advance(next, &mut answered);
        events += 1;
        if events.is_multiple_of(WATCH_EVENTS) && !watch(0) {
            return None;
        }
    }
    *now = end;
    Some(())
}

impl Running {
    /// The moment at which a job that ends by time is over, in nanoseconds after the phase's
    /// beginning.
    fn end_ns(&self) -> Option<u64> {
        let job = &self.requests.job;
        (job.time_ns > 0).then_some(job.start_ns.saturating_add(job.time_ns))
    }

    /// Begins to count at `ns` after the phase's beginning, if the time has come.
    fn end_ramp(&mut self, ns: u64) {
        if self.ramping && ns >= self.counts_from_ns {
            self.ramping = false;
            self.requests.end_ramp();
        }
    }

    /// Notes an answer at `ns`, after which a job that thinks may pause.
    fn pause(&mut self, ns: u64) {
        let job = &self.requests.job;
        if job.think_ns > 0 {
            self.since_pause += 1;
            if self.since_pause >= job.think_requests.max(1) {
                (self.since_pause, self.not_before_ns) = (0, ns + job.think_ns);
            }
        }
    }
}

impl Run<'_> {
    fn elapsed_ns(&self) -> u64 {
        self.now.since_ns(self.begin)
    }

    /// Whether the jobs that matter are over, and nothing is in flight any more.
    fn over(&self) -> bool {
        self.flying.is_empty() && self.asked_all()
    }

    fn can_settle(&self) -> bool {
        self.jobs.iter().all(|job| job.requests.job.settles)
    }

    fn awaited(&self) -> impl Iterator<Item = &Running> {
        let all_background = self.jobs.iter().all(|job| job.requests.job.background);
        self.jobs.iter().filter(move |job| is_awaited(&job.requests.job, all_background))
    }

    fn asked_all(&self) -> bool {
        let ns = self.elapsed_ns();
        self.settled || self.awaited().all(|job| job.requests.over(ns))
    }

    /// The work done since the last call.
    fn work_done(&mut self) -> u64 {
        self.answered_bytes = 0;
        let ns = self.elapsed_ns();
        let done = self.awaited().map(|job| {
            let result = &job.result;
            job_work_bytes(&job.requests.job, result.read_bytes + result.write_bytes, ns)
        });
        let done: u64 = done.sum();
        done - std::mem::replace(&mut self.told_bytes, done)
    }

    fn next_arrival(&self) -> Option<Time> {
        let ns = self.elapsed_ns();
        let ready = self.jobs.iter().filter(|job| !job.requests.over(ns) && !job.idle.is_empty());
        let arrivals = ready.filter_map(|job| match job.requests.arrival_ns() {
            Some(arrival) => Some(arrival.max(job.not_before_ns)),
            None => Some(job.not_before_ns).filter(|at| *at > ns),
        });
        let ends = self.jobs.iter().filter_map(|job| job.end_ns()).filter(|end| *end > ns);
        let ramps = self.jobs.iter().filter(|job| job.ramping && job.counts_from_ns > ns).map(|job| job.counts_from_ns);
        arrivals.chain(ends).chain(ramps).min().map(|ns| self.begin.plus_ns(ns))
    }

    /// Lets every job send the requests that it can.
    fn ask(&mut self) {
        let ns = self.elapsed_ns();
        if self.asked_all() {
            return;
        }
        for at in 0..self.jobs.len() {
            self.jobs[at].end_ramp(ns);
            loop {
                let job = &mut self.jobs[at];
                if job.requests.over(ns) || job.idle.is_empty() || job.not_before_ns > ns {
                    break;
                }
                let arrival = job.requests.arrival_ns();
                if arrival.is_some_and(|arrival| arrival > ns) {
                    break;
                }
                let Some(worker) = job.idle.pop() else { break };
                let ask = job.requests.next(worker);
                // FLUSHes are no part of a rate.
                if ask != Ask::Flush {
                    job.requests.note_arrival();
                }
                let since = arrival.map_or(self.now, |ns| self.begin.plus_ns(ns));
                self.submit(at, worker, since, ask);
            }
        }
    }

    /// Sends whole blocks, at most 1 MiB at once, as systems take them.
    fn submit(&mut self, job: usize, worker: usize, since: Time, ask: Ask) {
        let (kind, offset, len) = match ask {
            Ask::Read { offset, len } => (system::Ask::Read, offset, len),
            Ask::Write { offset, len } => (system::Ask::Write, offset, len),
            Ask::Flush => (system::Ask::Flush, 0, 0),
        };
        let (begin, end) = (offset / BLOCK_BYTES * BLOCK_BYTES, (offset + len).next_multiple_of(BLOCK_BYTES));
        let parts = (end - begin).div_ceil(REQUEST_BYTES_MAX).max(1);
        let first = *self.next_number + 1;
        self.flying.insert(first, Flying { job, worker, since, ask, parts: parts as u32 });
        for part in 0..parts {
            *self.next_number += 1;
            let number = *self.next_number;
            if part > 0 {
                self.parts.insert(number, first);
            }
            let offset = begin + part * REQUEST_BYTES_MAX;
            let len = (end - offset).min(REQUEST_BYTES_MAX);
            self.system.submit(self.now, SystemRequest { number, ask: kind, offset, len });
        }
    }

    fn answered(&mut self, number: u64) {
        let first = self.parts.remove(&number).unwrap_or(number);
        let flying = self.flying.get_mut(&first).expect("a system answers each request once");
        flying.parts -= 1;
        if flying.parts > 0 {
            return;
        }
        let flying = self.flying.remove(&first).expect("it was found");
        let ns = self.now.since_ns(flying.since);
        let elapsed = self.elapsed_ns();
        let job = &mut self.jobs[flying.job];
        job.idle.push(flying.worker);
        job.end_ramp(elapsed);
        job.pause(elapsed);
        if job.ramping {
            return;
        }
        let result = &mut job.result;
        result.time_ns = elapsed - job.counts_from_ns;
        match flying.ask {
            Ask::Read { len, .. } => {
                result.reads += 1;
                result.read_bytes += len;
                job.read_bytes += len;
                result.read_ns.saturating_record(ns);
                self.answered_bytes += len;
            }
            Ask::Write { len, .. } => {
                result.writes += 1;
                result.write_bytes += len;
                job.write_bytes += len;
                result.write_ns.saturating_record(ns);
                self.answered_bytes += len;
            }
            Ask::Flush => {
                result.flushes += 1;
                result.flush_ns.saturating_record(ns);
            }
        }
    }

    fn interval(&mut self, end_ns: u64) -> Interval {
        let take = |job: &mut Running| (std::mem::take(&mut job.read_bytes), std::mem::take(&mut job.write_bytes));
        let (read_bytes, write_bytes) = self.jobs.iter_mut().map(take).unzip();
        Interval { end_ns, read_bytes, write_bytes, traffic: self.system.traffic() }
    }
}
