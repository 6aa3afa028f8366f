// SPDX-License-Identifier: MIT OR Apache-2.0
//! Axes of charts: linear or logarithmic ones, with labels at round numbers.

/// How an axis counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Scale {
    Linear,
    Log,
}

/// An axis.
#[derive(Clone, Debug)]
pub(super) struct Axis {
    pub(super) label: String,
    pub(super) scale: Scale,
    /// The value at its beginning, left or below, and at its end. The first may be the larger one.
    pub(super) low: f64,
    pub(super) high: f64,
    /// The places of its labels, and their texts; a second line of text may be below.
    pub(super) ticks: Vec<(f64, String)>,
}

/// A line whose values are this many times another's makes the other one flat on a linear axis.
const HIDES: f64 = 20.0;

impl Axis {
    /// A linear axis around all of `values`, labelled at round numbers.
    pub(super) fn around(label: &str, values: impl Iterator<Item = f64>, text: impl Fn(f64) -> String) -> Self {
        let (low, high) = ends(values);
        let (low, high) = if low > high { (0.0, 1.0) } else { (low, high) };
        let step = round_step((high - low).max(high.abs() * 0.02).max(1e-9) / 4.0);
        let (first, last) = ((low / step).floor(), (high / step).ceil().max((low / step).floor() + 1.0));
        let ticks = (0..=(last - first) as u64).map(|nth| (first + nth as f64) * step);
        Self {
            label: label.to_owned(),
            scale: Scale::Linear,
            low: first * step,
            high: last * step,
            ticks: ticks.map(|at| (at, text(at))).collect(),
        }
    }

    /// An axis from nothing to the largest of `values`: linear, or logarithmic where a linear one
    /// would hide the smaller values. On a logarithmic axis, nothing is at the lower end.
    pub(super) fn from_nothing(label: &str, values: &[f64], text: impl Fn(f64) -> String) -> Self {
        let (least, most) = ends(values.iter().copied().filter(|it| *it > 0.0));
        if least > most || most / least <= HIDES {
            return Self::around(label, values.iter().copied().chain([0.0]), text);
        }
        // A value below a millionth of the largest is as good as nothing.
        let least = least.max(most / 1e6);
        let has_nothing = values.iter().any(|it| *it < least);
        let (low, high) = (if has_nothing { least / 2.0 } else { least / 1.2 }, most * 1.2);
        let mut ticks: Vec<(f64, String)> = log_ticks(least / 1.2, high).map(|at| (at, text(at))).collect();
        if has_nothing {
            ticks.retain(|it| it.0 >= least);
            ticks.insert(0, (low, text(0.0)));
        }
        Self { label: label.to_owned(), scale: Scale::Log, low, high, ticks }
    }

    /// Returns the place of a value, from 0 to 1.
    pub(super) fn share(&self, value: f64) -> f64 {
        let share = match self.scale {
            Scale::Linear => (value - self.low) / (self.high - self.low),
            Scale::Log => (value / self.low).ln() / (self.high / self.low).ln(),
        };
        // Nothing has no logarithm, and is at the lower end.
        if share.is_nan() { 0.0 } else { share.clamp(0.0, 1.0) }
    }
}

fn ends(values: impl Iterator<Item = f64>) -> (f64, f64) {
    values.fold((f64::MAX, f64::MIN), |(low, high), it| (low.min(it), high.max(it)))
}

/// Round numbers between two values: 1, 2 and 5 of each power of ten if there is room for them,
/// else only 1.
pub(super) fn log_ticks(low: f64, high: f64) -> impl Iterator<Item = f64> {
    let digits: &[f64] = if high / low > 2e3 { &[1.0] } else { &[1.0, 2.0, 5.0] };
    let powers = (low.log10().floor() as i32)..=(high.log10().ceil() as i32);
    let all = powers.flat_map(move |power| digits.iter().map(move |digit| digit * 10_f64.powi(power)));
    all.filter(move |it| (low..=high).contains(it))
}

/// The least of 1, 2, 5, 10, 20, 50, ... that is at least `step`, or of such parts of 1.
pub(super) fn round_step(step: f64) -> f64 {
    let power = 10_f64.powf(step.log10().floor());
    [1.0, 2.0, 5.0, 10.0].iter().map(|it| it * power).find(|it| *it >= step * 0.999).unwrap_or(10.0 * power)
}

/// A number with as many digits as it needs.
pub(super) fn plain(value: f64) -> String {
    let rounded = format!("{value:.6}");
    rounded.trim_end_matches('0').trim_end_matches('.').to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn texts(axis: &Axis) -> Vec<&str> {
        axis.ticks.iter().map(|it| &*it.1).collect()
    }

    #[test]
    fn axes_end_at_round_numbers() {
        let axis = Axis::around("", [17.2, 53.4].into_iter(), |it| format!("{it:.0}"));
        assert_eq!((axis.low, axis.high), (10.0, 60.0));
        assert_eq!(texts(&axis), ["10", "20", "30", "40", "50", "60"]);
        for value in [0.0, 1.0, 99.9] {
            let axis = Axis::around("", [value].into_iter(), |it| it.to_string());
            assert!(axis.low <= value && value <= axis.high && axis.low < axis.high, "{axis:?}");
        }
    }

    #[test]
    fn a_logarithmic_axis_gives_factors_the_same_room() {
        let axis = Axis { label: String::new(), scale: Scale::Log, low: 10.0, high: 1000.0, ticks: Vec::new() };
        assert!((axis.share(100.0) - 0.5).abs() < 1e-12);
        assert_eq!((axis.share(10.0), axis.share(1000.0)), (0.0, 1.0));
        assert_eq!((axis.share(0.0), axis.share(5000.0)), (0.0, 1.0), "nothing leaves the frame");
    }

    #[test]
    fn values_that_a_linear_axis_would_hide_get_a_logarithmic_one() {
        assert_eq!(Axis::from_nothing("", &[1.0, 19.0], plain).scale, Scale::Linear);
        let axis = Axis::from_nothing("", &[0.7, 350.0], plain);
        assert_eq!(axis.scale, Scale::Log);
        assert_eq!(texts(&axis), ["1", "2", "5", "10", "20", "50", "100", "200"]);
        let axis = Axis::from_nothing("", &[0.0, 1.0, 190.0], plain);
        assert_eq!((axis.scale, axis.share(0.0)), (Scale::Log, 0.0));
        assert_eq!(texts(&axis), ["0", "1", "2", "5", "10", "20", "50", "100", "200"]);
        assert!(axis.share(1.0) > 0.05, "the least is not at the end where nothing is");
        assert_eq!(Axis::from_nothing("", &[0.0, 0.0], plain).scale, Scale::Linear);
    }

    #[test]
    fn steps_are_round() {
        for (step, round) in [(0.03, 0.05), (0.9, 1.0), (1.0, 1.0), (1.1, 2.0), (7.0, 10.0), (230.0, 500.0)] {
            assert!((round_step(step) - round).abs() < 1e-9, "{step}: {}", round_step(step));
        }
        assert_eq!([0.0, 0.05, 20.0, 1.5].map(plain), ["0", "0.05", "20", "1.5"]);
    }
}
