// SPDX-License-Identifier: MIT OR Apache-2.0
//! The look of policies and systems in pictures.
//!
//! Ours stands out, those that users meet have a colour, the others are grey. Dashes and marks say
//! what colours say.

use flashfront_sim::{policy, rival};

/// The name of our cache among policies and systems.
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

/// The weight of a series in a picture.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Weight {
    Background,
    Normal,
    Ours,
}

/// How a series looks.
#[derive(Clone, Copy, Debug)]
pub(super) struct Look {
    /// A name of `style`.
    pub(super) colour: &'static str,
    pub(super) marker: Marker,
    /// The dashes as SVG has them; empty for a line without gaps.
    pub(super) dashes: &'static str,
    pub(super) weight: Weight,
}

impl Look {
    /// How wide the line is, in pixels.
    pub(super) fn width(self) -> f64 {
        match self.weight {
            Weight::Ours => 3.6,
            Weight::Normal => 1.9,
            Weight::Background => 1.2,
        }
    }
}

/// The look of a policy.
pub(super) fn of_policy(policy: &str) -> Look {
    let coloured = |colour, marker, dashes| Look { colour, marker, dashes, weight: Weight::Normal };
    match policy {
        OURS => ours(),
        "belady" => coloured("ink", Marker::Diamond, "2 3"),
        "lru" => coloured("blue", Marker::Square, ""),
        "s3fifo" => coloured("green", Marker::Up, "9 3"),
        "arc" => coloured("purple", Marker::Diamond, "3 2"),
        "wtinylfu" => coloured("orange", Marker::Down, "8 2 2 2"),
        "smq" => coloured("sky", Marker::Square, "5 2"),
        _ => background(policy),
    }
}

/// A grey look of a policy, for pictures that are about others.
pub(super) fn background(policy: &str) -> Look {
    const MARKERS: [Marker; 6] =
        [Marker::Circle, Marker::Cross, Marker::Square, Marker::Up, Marker::Diamond, Marker::Down];
    const DASHES: [&str; 5] = ["12 3", "7 3", "3 2", "8 2 2 2", "1 2.5"];
    let nth = policy::ALL.iter().position(|spec| spec.name == policy).unwrap_or(0);
    Look {
        colour: "grey",
        marker: MARKERS[nth % MARKERS.len()],
        dashes: DASHES[nth % DASHES.len()],
        weight: Weight::Background,
    }
}

/// The look of a system: our cache, a device alone, or a model of another cache.
pub(super) fn of_system(system: &str) -> Look {
    let line = |colour, dashes| Look { colour, marker: Marker::Circle, dashes, weight: Weight::Normal };
    match system {
        OURS => ours(),
        "origin" | "hdd" => line("ink", "7 3"),
        "cache" | "ssd" => line("grey", "2 3"),
        "bound" => line("green", "12 2 2 2"),
        "bcache" => line("blue", ""),
        "bcache 4 MiB" => line("blue", "4 2"),
        "dm-cache" | "lvmcache 4.12" => line("green", "8 2 2 2"),
        "lvmcache 4.11" => line("purple", "8 2 2 2"),
        "flashcache" => line("orange", "3 3"),
        "gflash" => line("purple", "10 3"),
        _ => {
            const LOOKS: [(&str, &str); 10] = [
                ("sky", ""),
                ("sky", "3 2"),
                ("sky", "10 3"),
                ("orange", ""),
                ("orange", "10 3"),
                ("purple", ""),
                ("purple", "3 2"),
                ("green", ""),
                ("green", "3 2"),
                ("blue", "10 3"),
            ];
            let nth = rival::ALL.iter().position(|spec| spec.name == system).unwrap_or(0);
            let (colour, dashes) = LOOKS[nth % LOOKS.len()];
            line(colour, dashes)
        }
    }
}

/// The look of a target of a bench, of which nothing is known but its number.
pub(super) fn of_target(nth: usize) -> Look {
    const LOOKS: [(&str, &str); 7] = [
        ("ink", "7 3"),
        ("blue", ""),
        ("green", "8 2 2 2"),
        ("purple", "10 3"),
        ("orange", "3 3"),
        ("sky", "3 2"),
        ("grey", "2 3"),
    ];
    let (colour, dashes) = LOOKS[nth % LOOKS.len()];
    Look { colour, marker: Marker::Circle, dashes, weight: Weight::Normal }
}

fn ours() -> Look {
    Look { colour: "vermillion", marker: Marker::Circle, dashes: "", weight: Weight::Ours }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn differ(looks: &[(&str, Look)]) {
        for (nth, (name, this)) in looks.iter().enumerate() {
            for (other, that) in &looks[..nth] {
                let same = (this.colour, this.marker, this.dashes) == (that.colour, that.marker, that.dashes);
                assert!(!same, "{name} and {other}");
            }
        }
    }

    #[test]
    fn no_two_policies_look_the_same() {
        let looks: Vec<_> = policy::ALL.iter().map(|spec| (spec.name, of_policy(spec.name))).collect();
        differ(&looks);
        assert!(policy::by_name(OURS).is_some());
    }

    #[test]
    fn no_two_systems_of_a_picture_look_the_same() {
        let mut looks: Vec<_> = rival::ALL.iter().map(|spec| (spec.name, of_system(spec.name))).collect();
        looks.extend([OURS, "hdd", "ssd", "bound"].map(|name| (name, of_system(name))));
        differ(&looks);
        for suite in flashfront_sim::compare::ALL {
            let systems: Vec<_> = suite.systems.iter().map(|it| (it.name, of_system(it.name))).collect();
            differ(&systems);
        }
    }
}
