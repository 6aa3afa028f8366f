// SPDX-License-Identifier: MIT OR Apache-2.0
//! The course over time: intervals that can be drawn, and axes of time for systems that took unlike
//! long.

use flashfront_sim::load::PhaseResult;

use super::axis::{Axis, Scale, log_ticks, plain};
use super::chart::{Point, Series};
use super::look;
use crate::human;
use crate::sim::run::steps::{Step, steps};

/// A step takes at least this part of the axis, which is 2 to 7 pixels: what happened in less looks
/// like noise.
const STEP_MIN: f64 = 0.009;

/// A system and its phases, one after the other.
pub(super) struct Course<'a> {
    pub(super) system: &'a str,
    pub(super) phases: Vec<&'a PhaseResult>,
}

impl Course<'_> {
    /// When the last phase ends.
    pub(super) fn end_s(&self) -> f64 {
        self.phases.iter().map(|phase| phase.time_ns as f64 / 1e9).sum()
    }

    /// Draws the answered requests over time, as `rate` tells them from bytes a second.
    pub(super) fn answered(&self, time: &Time, rate: impl Fn(f64) -> f64) -> Series {
        let per_s = |step: &Step| (step.read_bytes + step.write_bytes) as f64 / (step.end_s - step.begin_s);
        let flat = |(begin, end, per_s): (f64, f64, f64)| [(begin, rate(per_s)), (end, rate(per_s))];
        self.series(time, time.thinned(&self.values(per_s)).into_iter().flat_map(flat).collect())
    }

    /// Draws dirty data over time, from the beginning to the end.
    pub(super) fn dirty(&self, time: &Time) -> Series {
        let before = self.phases.first().map_or(0, |phase| phase.before.dirty_bytes) as f64;
        let values = time.thinned(&self.values(|step| step.dirty_bytes as f64));
        let ends = values.into_iter().map(|(_, end, bytes)| (end, bytes));
        self.series(time, [(0.0, before)].into_iter().chain(ends).collect())
    }

    /// A value of each step: its beginning, its end, the value.
    fn values(&self, value: impl Fn(&Step) -> f64) -> Vec<(f64, f64, f64)> {
        let (mut begin_s, mut values) = (0.0, Vec::new());
        for phase in &self.phases {
            let steps = even(steps(phase));
            values.extend(steps.iter().map(|it| (begin_s + it.begin_s, begin_s + it.end_s, value(it))));
            begin_s += phase.time_ns as f64 / 1e9;
        }
        values
    }

    fn series(&self, time: &Time, points: Vec<(f64, f64)>) -> Series {
        let point = |(at, y): (f64, f64)| Point { x: at / time.unit_s, y, about: String::new() };
        Series {
            name: self.system.to_owned(),
            look: look::of_system(self.system),
            points: points.into_iter().map(point).collect(),
        }
    }
}

/// The steps, a short last one together with the one before it: what it moved in its time is noise.
fn even(mut all: Vec<Step>) -> Vec<Step> {
    if let [.., before, last] = &all[..]
        && last.end_s - last.begin_s < (before.end_s - before.begin_s) * 0.99
    {
        let merged = Step {
            begin_s: before.begin_s,
            read_bytes: before.read_bytes + last.read_bytes,
            write_bytes: before.write_bytes + last.write_bytes,
            ..*last
        };
        all.truncate(all.len() - 2);
        all.push(merged);
    }
    all
}

/// Returns a unit of time that suits this many seconds, and how many seconds it has.
fn unit_of(end_s: f64) -> (&'static str, f64) {
    match end_s {
        7200.0.. => ("h", 3600.0),
        180.0.. => ("min", 60.0),
        1.0.. => ("s", 1.0),
        _ => ("ms", 1e-3),
    }
}

/// The time that a picture shows, and its unit.
pub(super) struct Time {
    pub(super) axis: Axis,
    unit_s: f64,
}

impl Time {
    /// Makes an axis from the beginning to the end of the longest course, in the unit that suits
    /// it.
    ///
    /// The axis is logarithmic if a linear one would leave the shortest too little room.
    pub(super) fn of(courses: &[Course<'_>]) -> Self {
        Self::to(&courses.iter().map(Course::end_s).collect::<Vec<_>>())
    }

    fn to(ends_s: &[f64]) -> Self {
        let ends = ends_s.iter().fold((f64::MAX, 1e-9_f64), |(least, most), it| (least.min(*it), most.max(*it)));
        let (shortest, longest) = ends;
        let (unit, unit_s) = unit_of(longest);
        let (label, end) = (format!("time, {unit}"), longest / unit_s);
        if longest / shortest.max(1e-9) > 5.0 {
            let low = (shortest / unit_s / 20.0).max(end / 1e6);
            let ticks = log_ticks(low, end).map(|at| (at, plain(at))).collect();
            let axis = Axis { label: label + ", logarithmic", scale: Scale::Log, low, high: end, ticks };
            return Self { axis, unit_s };
        }
        let axis = Axis::around(&label, [0.0, end].into_iter(), plain);
        // To the end and not beyond, where nothing is.
        let ticks = axis.ticks.into_iter().filter(|it| it.0 <= end).collect();
        Self { axis: Axis { high: end, ticks, ..axis }, unit_s }
    }

    /// Neighbours together, so that each group takes some room on the axis; values are their means
    /// over time.
    fn thinned(&self, values: &[(f64, f64, f64)]) -> Vec<(f64, f64, f64)> {
        let room = |begin: f64, end: f64| self.axis.share(end / self.unit_s) - self.axis.share(begin / self.unit_s);
        // A group: its beginning, its end, how long its values lasted, and their sum over time.
        let mut groups: Vec<(f64, f64, f64, f64)> = Vec::new();
        for (begin, end, value) in values {
            let (time, sum) = (end - begin, value * (end - begin));
            match groups.last_mut() {
                Some(last) if room(last.0, last.1) < STEP_MIN => *last = (last.0, *end, last.2 + time, last.3 + sum),
                _ => groups.push((*begin, *end, time, sum)),
            }
        }
        // The last group is not smaller than the others.
        if let [.., before, last] = &groups[..]
            && room(last.0, last.1) < STEP_MIN
        {
            let joined = (before.0, last.1, before.2 + last.2, before.3 + last.3);
            groups.truncate(groups.len() - 2);
            groups.push(joined);
        }
        groups.into_iter().map(|(begin, end, time, sum)| (begin, end, sum / time.max(1e-9))).collect()
    }
}

/// Makes an axis from 0 to `top` bytes.
pub(super) fn size_axis(label: &str, top: f64) -> Axis {
    let size = 1024_f64.powf(top.max(1.0).log(1024.0).floor());
    let mut axis = Axis::around(label, [0.0, top / size].into_iter(), |it| human::bytes((it * size) as u64));
    (axis.low, axis.high) = (axis.low * size, axis.high * size);
    axis.ticks.iter_mut().for_each(|it| it.0 *= size);
    axis
}

#[cfg(test)]
mod tests {
    use super::*;

    fn step(begin_s: f64, end_s: f64, bytes: u64) -> Step {
        Step { begin_s, end_s, read_bytes: bytes, ..Step::default() }
    }

    #[test]
    fn a_short_last_step_makes_no_spike() {
        let steps = even(vec![step(0.0, 1.0, 100), step(1.0, 2.0, 100), step(2.0, 2.01, 40)]);
        assert_eq!(steps.len(), 2);
        assert_eq!((steps[1].begin_s, steps[1].end_s, steps[1].read_bytes), (1.0, 2.01, 140));
        assert_eq!(even(vec![step(0.0, 0.1, 1)]).len(), 1, "one alone stays");
        assert_eq!(even(vec![step(0.0, 1.0, 1), step(1.0, 2.0, 1)]).len(), 2);
    }

    #[test]
    fn groups_of_steps_have_the_mean_of_their_time() {
        let values: Vec<_> = (0..1005).map(|nth| (f64::from(nth), f64::from(nth + 1), f64::from(nth % 2))).collect();
        for (time, most) in [(Time::to(&[1005.0]), 112), (Time::to(&[1005.0, 5.0]), 120)] {
            let groups = time.thinned(&values);
            assert!(groups.len() <= most, "{}", groups.len());
            assert_eq!((groups[0].0, groups[groups.len() - 1].1), (0.0, 1005.0), "all of it");
            assert!(groups.windows(2).all(|pair| pair[0].1 == pair[1].0), "without gaps");
            let room = |it: &(f64, f64, f64)| time.axis.share(it.1 / time.unit_s) - time.axis.share(it.0 / time.unit_s);
            // A course before the axis begins takes no room.
            assert!(groups[1..].iter().all(|it| room(it) >= STEP_MIN), "no short last one");
            let sum: f64 = groups.iter().map(|it| it.2 * (it.1 - it.0)).sum();
            assert!((sum - 502.0).abs() < 1e-6, "{sum}");
            assert!(time.thinned(&[]).is_empty());
        }
    }

    #[test]
    fn time_ends_with_the_longest() {
        for (end_s, label, high) in [(0.25, "time, ms", 250.0), (7.0, "time, s", 7.0), (14_400.0, "time, h", 4.0)] {
            let axis = Time::to(&[end_s, end_s / 2.0]).axis;
            assert_eq!((&*axis.label, axis.high), (label, high));
            assert!(axis.ticks.iter().all(|it| it.0 <= high), "{axis:?}");
        }
    }

    #[test]
    fn the_shortest_has_room_beside_the_longest() {
        let axis = Time::to(&[0.4, 60.0]).axis;
        assert_eq!(axis.scale, Scale::Log);
        assert!(axis.share(0.4) > 0.2 && axis.share(60.0) == 1.0, "{axis:?}");
    }
}
