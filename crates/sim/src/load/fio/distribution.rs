// SPDX-License-Identifier: MIT OR Apache-2.0
//! Reads fio's `random_distribution`, which says where the requests of a random job go.

use super::units::{self, KbBase};
use crate::load::{Pattern, Zone};

/// A distribution, and the zones of a zoned one.
pub(super) fn read(text: &str, volume_bytes: u64, base: KbBase) -> Option<(Pattern, Vec<Zone>)> {
    let (name, parameter) = text.split_once(':').unwrap_or((text, ""));
    let number = || parameter.parse::<f64>().ok().filter(|it| it.is_finite() && *it > 0.0);
    let pattern = match name {
        "random" => Pattern::Random,
        "zipf" => Pattern::Zipf(number().filter(|it| *it != 1.0)?),
        "pareto" => Pattern::Pareto(number().filter(|it| *it < 1.0)?),
        "normal" => Pattern::Normal(number().filter(|it| *it <= 100.0)?),
        "zoned" => return Some((Pattern::Zoned, zones(parameter, |size| size.parse::<f64>().ok())?)),
        "zoned_abs" => {
            let percent = |size: &str| Some(units::bytes(size, base)? as f64 * 100.0 / volume_bytes as f64);
            return Some((Pattern::Zoned, zones(parameter, percent)?));
        }
        _ => return None,
    };
    Some((pattern, Vec::new()))
}

/// `50/5:30/15:20/`: percent of the requests, and what `span` reads as percent of the range. Empty
/// spans share the rest.
fn zones(text: &str, span: impl Fn(&str) -> Option<f64>) -> Option<Vec<Zone>> {
    let mut given = Vec::new();
    for zone in text.split(':') {
        let (requests, size) = zone.split_once('/')?;
        let requests = requests.parse::<f64>().ok().filter(|it| (0.0..=100.0).contains(it))?;
        let size = match size {
            "" => None,
            size => Some(span(size).filter(|it| *it > 0.0)?),
        };
        given.push((requests, size));
    }
    let spans: f64 = given.iter().filter_map(|zone| zone.1).sum();
    let open = given.iter().filter(|zone| zone.1.is_none()).count();
    let requests: f64 = given.iter().map(|zone| zone.0).sum();
    if spans > 100.0 || requests > 100.0 || requests <= 0.0 || (open > 0 && spans >= 100.0) {
        return None;
    }
    let rest = (100.0 - spans) / open.max(1) as f64;
    let zone =
        |(requests_percent, size): (f64, Option<f64>)| Zone { requests_percent, span_percent: size.unwrap_or(rest) };
    Some(given.into_iter().map(zone).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn zones_without_a_size_share_the_rest() {
        let zoned = |text| read(text, 1 << 30, KbBase::Compatible).map(|it| it.1);
        let zone = |requests_percent, span_percent| Zone { requests_percent, span_percent };
        assert_eq!(zoned("zoned:50/5:30/15:20/"), Some(vec![zone(50.0, 5.0), zone(30.0, 15.0), zone(20.0, 80.0)]));
        assert_eq!(zoned("zoned_abs:60/256m:40/"), Some(vec![zone(60.0, 25.0), zone(40.0, 75.0)]));
        for wrong in
            ["zoned:", "zoned:50", "zoned:60/60:40/60", "zoned:x/5", "zoned:50/100:50/", "normal:0", "zipf:1", "x"]
        {
            assert_eq!(zoned(wrong), None, "{wrong}");
        }
    }
}
