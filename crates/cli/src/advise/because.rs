// SPDX-License-Identifier: MIT OR Apache-2.0
//! Why an SSD is needed, or isn't, and whether the recording is long enough to say so: in plain
//! words.

use flashfront_sim::advise::{Advice, Backlog, Because, GAIN_MAX, Played, Question, Ram, Trial, UNSEEN_MAX};

use super::told::{latency, setup};
use crate::human;

/// Recordings are not said to need more than a week: then all that a machine does weekly is in
/// them.
const WEEK_NS: f64 = 7.0 * 86_400e9;
/// Times of a day at most are told in whole hours from this many on.
const HOUR_NS: f64 = 3_600e9;

/// The answer in a sentence or two.
pub(super) fn because(question: &Question, advice: &Advice) -> String {
    let alone = latency(advice.alone.played.mean_ns());
    match advice.because {
        Because::SavesTime => saves_time(advice, &alone),
        Because::FitsRam => fits_ram(advice, &alone),
        Because::ReadAround => read_around(advice, &alone),
        Because::Scan => scan(advice),
        Because::AskedOnce => format!(
            "No, because {} of what is read is asked for once: no cache can have it. {}",
            human::percent(advice.growth.again_share().map(|share| 1.0 - share)),
            best(advice)
        ),
        Because::TooFarApart => format!(
            "No, because what is read comes again too late: {} of it had been asked for before, and the caches that were tried kept {} at most. {}",
            human::percent(advice.growth.again_share()),
            human::percent(hits_max(advice)),
            best(advice)
        ),
        Because::DiskIsFast => format!(
            "No, because {} takes {alone} a request, about as long as the cache device or as all that requests wait for with a cache. {}",
            question.origin.name,
            best(advice)
        ),
        Because::WritesOutrun => writes_outrun(question, advice),
    }
}

fn saves_time(advice: &Advice, alone: &str) -> String {
    let Some(choice) = &advice.choice else { return String::new() };
    format!(
        "A cache helps: with {} in {} mode a request takes {} instead of {alone} in the mean.",
        human::bytes(choice.cache_bytes),
        choice.mode.name(),
        latency(choice.mean_ns)
    )
}

fn fits_ram(advice: &Advice, alone: &str) -> String {
    let Some(Ram { alone: asked, around }) = &advice.ram else { return String::new() };
    let best = if around.played.mean_ns() < asked.played.mean_ns() { around } else { asked };
    format!(
        "No, because what is read again fits in RAM: with {} more of it a request takes {} instead of {alone} in the mean. (The page cache takes it, but for clients that read with O_DIRECT: for them a cache file in /dev/shm does.)",
        size_of(best),
        latency(best.played.mean_ns())
    )
}

fn read_around(advice: &Advice, alone: &str) -> String {
    let Some(Ram { alone: ram, around }) = &advice.ram else { return String::new() };
    format!(
        "No, because requests lie side by side: {} of RAM and reading around misses do it, with {} a request instead of {alone} in the mean. RAM without reading around takes {}, as only {} of what is read had been asked for before. (A cache file in /dev/shm, in writethrough mode, reads around so.)",
        size_of(around),
        latency(around.played.mean_ns()),
        latency(ram.played.mean_ns()),
        human::percent(advice.growth.again_share())
    )
}

fn scan(advice: &Advice) -> String {
    let (growth, survey) = (&advice.growth, &advice.survey);
    let follow = growth.sequential_requests as f64 / (survey.reads + survey.writes).max(1) as f64;
    let reading_on = advice.ram.as_ref().map_or_else(
        || best(advice),
        |ram| {
            let [around, alone] = [&ram.around, &advice.alone].map(|it| latency(it.played.mean_ns()));
            format!("Reading larger pieces into RAM does it: {around} a request instead of {alone} in the mean.")
        },
    );
    format!(
        "No, because it is a scan: {} of the requests go on where another ended, and {} of what is read is asked for once. {reading_on}",
        human::percent(Some(follow)),
        human::percent(growth.again_share().map(|share| 1.0 - share))
    )
}

fn writes_outrun(question: &Question, advice: &Advice) -> String {
    let Some(largest) = advice.sizes.last() else { return String::new() };
    let Played { backlog, took_ns, .. } = &largest.played;
    let written = rate(advice.survey.write_bytes, advice.survey.span_ns.unwrap_or(*took_ns));
    let taken = drained(largest);
    format!(
        "No, because more is written than {} takes: {} a second, of which {} have to reach the disk; it takes {taken} a second in the long run, however they are sorted. The dirty limit of any cache fills, and then writes go at the disk's speed. {}",
        question.origin.name,
        human::bytes(written),
        human::bytes(rate(backlog.dirtied_bytes, *took_ns)),
        best(advice)
    )
}

/// Says how much dirty data the disk takes in a second: while the limit was full, or in a drain.
fn drained(trial: &Trial) -> String {
    let Played { backlog, took_ns, traffic, .. } = &trial.played;
    let Backlog { full_ns, .. } = backlog;
    let full = (*full_ns * 2 > *took_ns).then(|| rate(traffic.origin_write_bytes, *took_ns));
    let found = full.or(backlog.drain_bytes_per_s().map(|it| it as u64));
    human::bytes(found.unwrap_or(0))
}

fn rate(bytes: u64, ns: u64) -> u64 {
    (bytes as f64 * 1e9 / ns.max(1) as f64) as u64
}

fn hits_max(advice: &Advice) -> Option<f64> {
    let all = advice.sizes.iter().filter_map(|trial| trial.played.read_hit_ratio());
    all.max_by(f64::total_cmp)
}

/// Says what the best size brought.
fn best(advice: &Advice) -> String {
    let Some(best) = advice.sizes.iter().min_by_key(|trial| trial.played.mean_ns()) else {
        return "No size was tried.".to_owned();
    };
    format!(
        "With the best cache that was tried, {}, a request takes {} instead of {} in the mean.",
        setup(best).0,
        latency(best.played.mean_ns()),
        latency(advice.alone.played.mean_ns())
    )
}

fn size_of(trial: &Trial) -> String {
    human::bytes(trial.cache.map_or(0, |it| it.0))
}

/// Says what RAM brings, and so what is left to the SSD; nothing where that is the answer already.
pub(super) fn ram(advice: &Advice) -> Option<String> {
    let Ram { alone, around } = advice.ram.as_ref().filter(|_| advice.because.needs_cache())?;
    let choice = advice.choice?;
    Some(format!(
        "RAM: {} of it in place of the SSD takes {} a request, and {} if misses are read around; the SSD makes that {}.",
        size_of(alone),
        latency(alone.played.mean_ns()),
        latency(around.played.mean_ns()),
        latency(choice.mean_ns)
    ))
}

/// Whether the recording is long enough.
pub(super) fn converged(advice: &Advice) -> String {
    let found = &advice.converged;
    if found.is_converged() {
        return "Recording: long enough. Half of it says the same.".to_owned();
    }
    let mut why = Vec::new();
    if !found.agrees {
        let size = |bytes: Option<u64>| bytes.map_or_else(|| "no cache".to_owned(), human::bytes);
        let whole = advice.choice.map(|it| it.cache_bytes);
        why.push(format!("its first half says {}, all of it {}", size(found.first_half), size(whole)));
    }
    if found.grows() {
        why.push(format!(
            "twice as long it would show that {} more of the reads come again ({} would do)",
            human::percent(found.gain),
            human::percent(Some(GAIN_MAX))
        ));
    }
    if found.is_unseen() {
        why.push(format!(
            "{} of what is read in its last quarter had never been asked for ({} would do)",
            human::percent(found.unseen),
            human::percent(Some(UNSEEN_MAX))
        ));
    }
    format!("Recording: too short, the working set still grows: {}. {}", why.join("; "), longer(advice))
}

/// How long the recording should be.
fn longer(advice: &Advice) -> String {
    let times = advice.converged.times;
    let Some(span_ns) = advice.survey.span_ns.filter(|ns| *ns > 0) else {
        return format!("Record {times:.0} times as many requests, or more.");
    };
    let needed = span_ns as f64 * times;
    if needed >= WEEK_NS {
        return "Record a week, so that all is in it that the machine does weekly.".to_owned();
    }
    let unit = if needed > HOUR_NS { HOUR_NS } else { 60e9 };
    let needed_s = (needed / unit).ceil() * unit / 1e9;
    format!("Record {} or more; a day at least where nights differ from days.", human::span(needed_s as u64))
}
