// SPDX-License-Identifier: MIT OR Apache-2.0
//! Finds the model that a device's reads are most like, and by how much the device is slower than
//! that.
//!
//! All times are compared as ratios. The middle ratio is the scale, and the spread around it says
//! how far off the model is. So a device that is twice as slow in everything is that model with a
//! scale of 2. One odd phase does not change the scale.

use super::{COUNT, Times};
use crate::sim::{Fill, Known, ModelSpec, known};

/// Models whose spreads differ by less than this can't be told apart by reads.
const SAME: f64 = 0.01;

/// The nearest model.
#[derive(Clone, Copy, Debug)]
pub struct Nearest {
    /// The model as we know it.
    pub known: Known,
    /// How many times as long everything takes on the device.
    pub scale: f64,
    /// The factor by which the device's times differ from the scaled model's, in the mean; 1 if
    /// they don't.
    pub off: f64,
}

/// Finds the model that is nearest to a device with these times.
///
/// Two models may differ in how they write only. Then `write_cache` says whether the device has a
/// volatile write cache that is on. An SSD is taken for a full one, as any that is in use.
#[must_use]
pub fn nearest(times: &Times, write_cache: Option<bool>) -> Nearest {
    // A network volume is sold with its bounds, and is named by who asks. A few seconds of reads
    // find no bound that begins after a burst.
    let is_local = |known: &Known| !matches!(known.model, ModelSpec::Volume(_));
    let mut all: Vec<Nearest> = known().into_iter().filter(is_local).map(|known| compared(times, known)).collect();
    all.sort_by(|one, other| one.off.total_cmp(&other.off));
    let best = all[0];
    let twins = all.into_iter().take_while(|it| it.off <= best.off * (1.0 + SAME));
    let fits = |it: &Nearest| match it.known.model {
        ModelSpec::Hdd(spec) => write_cache.unwrap_or(true) == (spec.write_cache_bytes > 0),
        ModelSpec::Ssd(spec) => spec.fill == Fill::Full,
        ModelSpec::Volume(_) => false,
    };
    twins.into_iter().find(fits).unwrap_or(best)
}

fn compared(times: &Times, known: Known) -> Nearest {
    let model = Times::of(&known);
    let mut logs: Vec<f64> = times.0.iter().zip(model.0).map(|(time, model)| (time / model).ln()).collect();
    logs.sort_by(f64::total_cmp);
    let middle = logs[COUNT / 2];
    let spread = logs.iter().map(|log| (log - middle).powi(2)).sum::<f64>() / COUNT as f64;
    Nearest { known, scale: middle.exp(), off: spread.sqrt().exp() }
}

impl Nearest {
    /// The device: its model at its own pace, with its own size.
    #[must_use]
    pub fn device(&self, size_bytes: u64) -> Known {
        Known { model: self.known.model.scaled(self.scale), size_bytes, ..self.known }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Says whether a model has a write cache, if only writes tell it from the models beside it.
    fn write_cache_of(known: &Known) -> Option<bool> {
        match known.model {
            ModelSpec::Hdd(spec) => Some(spec.write_cache_bytes > 0),
            ModelSpec::Ssd(_) | ModelSpec::Volume(_) => None,
        }
    }

    #[test]
    fn each_model_is_nearest_to_itself() {
        let is_local = |known: &Known| !matches!(known.model, ModelSpec::Volume(_));
        for known in known().into_iter().filter(is_local) {
            for times in [1.0, 2.0, 0.7] {
                let device = Known { model: known.model.scaled(times), ..known };
                let found = nearest(&Times::of(&device), write_cache_of(&known));
                let expected = if known.name == "samsung-850-pro" { "samsung-850-pro-full" } else { known.name };
                assert_eq!(found.known.name, expected, "{} at {times}", known.name);
                assert!((found.scale / times - 1.0).abs() < 0.05, "{} at {times}: {}", known.name, found.scale);
                assert!(found.off < 1.05, "{}: {}", known.name, found.off);
            }
        }
    }

    #[test]
    fn what_is_like_no_model_is_said_to_be_off() {
        let disk = known().into_iter().find(|it| it.name == "wd-re-4tb").unwrap();
        let mut times = Times::of(&disk);
        // An array: as slow with one read at a time, eight times as fast with many.
        times.0[3] /= 8.0;
        let found = nearest(&times, None);
        assert_eq!(found.known.name, "wd-re-4tb");
        assert!(found.off > 1.5 && (found.scale - 1.0).abs() < 0.05, "{found:?}");
    }

    #[test]
    fn a_disk_without_a_write_cache_is_told_by_what_the_kernel_says() {
        let times = Times::of(&known()[0]);
        assert_eq!(nearest(&times, Some(false)).known.name, "wd-re-4tb-uncached");
        assert_eq!(nearest(&times, None).known.name, "wd-re-4tb", "as they are sold");
    }
}
