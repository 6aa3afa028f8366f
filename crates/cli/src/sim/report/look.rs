// SPDX-License-Identifier: MIT OR Apache-2.0
//! How policies are told apart in pictures: ours stands out, those that users meet have a colour, the others are grey.
//!
//! Colours are those of M. Okabe and K. Ito, "Color Universal Design" (2008), which people who are blind to some still
//! tell apart; shape and dashes say the same once more.

use flashfront_sim::policy;

/// Whose cache this is.
pub(super) const OURS: &str = "flashfront";

/// A point's shape.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Marker {
    Circle,
    Square,
    Up,
    Down,
    Diamond,
    Cross,
}

/// How much a series is in the foreground.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Weight {
    Background,
    Normal,
    Ours,
}

/// How a series looks.
#[derive(Clone, Copy, Debug)]
pub(super) struct Look {
    pub(super) colour: &'static str,
    pub(super) marker: Marker,
    /// As SVG has it; empty for a line without gaps.
    pub(super) dashes: &'static str,
    pub(super) weight: Weight,
}

const GREY: &str = "#8a8a8a";

/// Of a policy.
pub(super) fn of(policy: &str) -> Look {
    let coloured = |colour, marker| Look { colour, marker, dashes: "", weight: Weight::Normal };
    match policy {
        OURS => Look { weight: Weight::Ours, ..coloured("#d55e00", Marker::Circle) },
        "belady" => Look { dashes: "2 3", ..coloured("#000000", Marker::Diamond) },
        "lru" => coloured("#0072b2", Marker::Square),
        "s3fifo" => coloured("#009e73", Marker::Up),
        "arc" => coloured("#cc79a7", Marker::Diamond),
        "wtinylfu" => coloured("#e69f00", Marker::Down),
        "smq" => coloured("#56b4e9", Marker::Square),
        _ => background(policy),
    }
}

/// The same, grey: for pictures that are about others.
pub(super) fn background(policy: &str) -> Look {
    const MARKERS: [Marker; 6] =
        [Marker::Circle, Marker::Cross, Marker::Square, Marker::Up, Marker::Diamond, Marker::Down];
    const DASHES: [&str; 5] = ["", "7 3", "3 2", "8 2 2 2", "1 2.5"];
    let nth = policy::ALL.iter().position(|spec| spec.name == policy).unwrap_or(0);
    Look {
        colour: GREY,
        marker: MARKERS[nth % MARKERS.len()],
        dashes: DASHES[nth % DASHES.len()],
        weight: Weight::Background,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_two_policies_look_the_same() {
        for (nth, spec) in policy::ALL.iter().enumerate() {
            let this = of(spec.name);
            for other in &policy::ALL[..nth] {
                let that = of(other.name);
                let same = (this.colour, this.marker, this.dashes) == (that.colour, that.marker, that.dashes);
                assert!(!same, "{} and {}", spec.name, other.name);
            }
        }
        assert!(policy::by_name(OURS).is_some());
    }
}
