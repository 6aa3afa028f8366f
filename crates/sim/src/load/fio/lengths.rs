// SPDX-License-Identifier: MIT OR Apache-2.0
//! Reads fio's `bs`, `bsrange` and `bssplit`, the lengths of reads and of writes.

use super::units::{self, KbBase};
use crate::load::Lengths;

/// The lengths of reads and of writes, as fio separates them: by a comma, the first for both if it
/// is alone.
type Both = [Lengths; 2];

/// Each direction's part of a value; an empty part keeps what was there before.
fn by_direction(text: &str, before: &Both, one: impl Fn(&str) -> Option<Lengths>) -> Option<Both> {
    let mut parts = text.split(',').map(str::trim);
    let first = parts.next()?;
    let second = parts.next();
    // The third is for trims.
    parts.next();
    let of = |part: &str, before: &Lengths| if part.is_empty() { Some(before.clone()) } else { one(part) };
    let reads = of(first, &before[0])?;
    let writes = match second {
        Some(second) => of(second, &before[1])?,
        None => reads.clone(),
    };
    parts.next().is_none().then_some([reads, writes])
}

fn length(text: &str, base: KbBase) -> Option<u64> {
    units::bytes(text.trim(), base).filter(|it| *it > 0)
}

/// `bs=4k`, `bs=4k,8k`.
pub(super) fn fixed(text: &str, before: &Both, base: KbBase) -> Option<Both> {
    by_direction(text, before, |part| Some(Lengths::Split(vec![(length(part, base)?, 1)])))
}

/// `bsrange=1k-4k`, also `1k:4k`, and with a comma another range for writes.
pub(super) fn range(text: &str, before: &Both, base: KbBase) -> Option<Both> {
    by_direction(text, before, |part| {
        // fio reads two numbers and nothing of what follows each.
        let mut numbers = part.split(['-', ':']).map(|it| it.split('/').next().unwrap_or_default());
        let (least, most) = (length(numbers.next()?, base)?, length(numbers.next()?, base)?);
        (least <= most).then_some(Lengths::Range { least, most, step: least })
    })
}

/// `bssplit=4k/60:64k/40`: lengths and percents. Lengths without a percent share what the others
/// leave.
pub(super) fn split(text: &str, before: &Both, base: KbBase) -> Option<Both> {
    by_direction(text, before, |part| {
        let mut given = Vec::new();
        for choice in part.split(':') {
            let (bytes, percent) = choice.split_once('/').unwrap_or((choice, ""));
            let percent = match percent.trim() {
                "" => None,
                text => Some(text.parse::<u32>().ok().filter(|it| *it <= 100)?),
            };
            given.push((length(bytes, base)?, percent));
        }
        let sum: u32 = given.iter().filter_map(|choice| choice.1).sum();
        let open = given.iter().filter(|choice| choice.1.is_none()).count() as u32;
        if sum > 100 || (sum == 0 && open == 0) {
            return None;
        }
        // In hundredths of a percent, since what is left may not divide evenly.
        let share = ((100 - sum) * 100).checked_div(open).unwrap_or(0);
        let weight = |percent: Option<u32>| percent.map_or(share, |it| it * 100);
        Some(Lengths::Split(given.into_iter().map(|(bytes, percent)| (bytes, weight(percent))).collect()))
    })
}

/// The unit of places, the lengths of reads and those of writes; one length for all is the job's
/// block itself.
pub(super) fn with_unit(reads: Lengths, writes: Lengths, unit: Option<u64>) -> (u64, Lengths, Lengths) {
    let least = reads.least(u64::MAX).min(writes.least(u64::MAX));
    let block = unit.unwrap_or(least);
    let simple =
        |lengths: Lengths| if lengths.least(0) == block && lengths.most(0) == block { Lengths::Block } else { lengths };
    (block, simple(reads), simple(writes))
}

#[cfg(test)]
mod tests {
    use super::*;

    const KB: KbBase = KbBase::Compatible;

    fn none() -> Both {
        let four = || Lengths::Split(vec![(4096, 1)]);
        [four(), four()]
    }

    #[test]
    fn reads_and_writes_have_lengths_of_their_own() {
        let of = |bytes| Lengths::Split(vec![(bytes, 1)]);
        assert_eq!(fixed("8k", &none(), KB), Some([of(8192), of(8192)]));
        assert_eq!(fixed("8k,64k,4k", &none(), KB), Some([of(8192), of(65536)]));
        assert_eq!(fixed(",64k", &none(), KB), Some([of(4096), of(65536)]));
        for wrong in ["", "x", "4k,x", "0", "4k,4k,4k,4k"] {
            assert!(wrong.is_empty() || fixed(wrong, &none(), KB).is_none(), "{wrong}");
        }
    }

    #[test]
    fn what_has_no_percent_shares_the_rest() {
        let split = |text| split(text, &none(), KB).map(|[reads, _]| reads);
        assert_eq!(split("4k/60:64k/40"), Some(Lengths::Split(vec![(4096, 6000), (65536, 4000)])));
        assert_eq!(split("4k/50:8k/:16k"), Some(Lengths::Split(vec![(4096, 5000), (8192, 2500), (16384, 2500)])));
        for wrong in ["4k/60:8k/60", "4k/x", "/50", "4k/-1", "4k/0"] {
            assert_eq!(split(wrong), None, "{wrong}");
        }
    }

    #[test]
    fn a_range_goes_upwards() {
        let expected = Lengths::Range { least: 1024, most: 4096, step: 1024 };
        assert_eq!(range("1k-4k", &none(), KB), Some([expected.clone(), expected]));
        assert_eq!(range("4k-1k", &none(), KB), None);
        let half = Lengths::Range { least: 512, most: 1024, step: 512 };
        assert_eq!(range("512/25:1k:25:2k", &none(), KB), Some([half.clone(), half]), "as fio has it");
    }
}
