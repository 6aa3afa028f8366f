// SPDX-License-Identifier: MIT OR Apache-2.0
//! Places the names of lines and points so that none covers another.

use super::canvas::{Frame, shared};

/// Height of a line of text.
pub(super) const LINE_HEIGHT: f64 = 15.5;

/// The place of a name.
#[derive(Clone, Copy, Debug)]
pub(super) struct Label {
    /// Left end and middle of the text.
    pub(super) text: (f64, f64),
    /// A line from the point to its name, if the text isn't right beside it.
    pub(super) leader: Option<((f64, f64), (f64, f64))>,
}

/// Names in a column at `x`, each as near as can be to the end of its line, in the order of the
/// ends.
pub(super) fn beside(ends: &[(f64, f64)], x: f64, (top, bottom): (f64, f64)) -> Vec<Label> {
    let mut order: Vec<usize> = (0..ends.len()).collect();
    order.sort_by(|&a, &b| ends[a].1.total_cmp(&ends[b].1));
    // Groups of names that touch: the sum of their ends, and their number. Each is centred on the
    // mean of its ends, as far as there is room. Groups that would overlap become one.
    let mut groups: Vec<(f64, usize)> = Vec::new();
    let middle = |&(sum, members): &(f64, usize)| {
        let half = members as f64 / 2.0 * LINE_HEIGHT;
        (sum / members as f64).min(bottom - half).max(top + half)
    };
    for &nth in &order {
        let mut group = (ends[nth].1, 1);
        while let Some(above) = groups.pop() {
            let room = (above.1 + group.1) as f64 / 2.0 * LINE_HEIGHT;
            if middle(&group) - middle(&above) >= room {
                groups.push(above);
                break;
            }
            group = (above.0 + group.0, above.1 + group.1);
        }
        groups.push(group);
    }
    let tops = groups.iter().flat_map(|group| {
        let first = middle(group) - (group.1 as f64 - 1.0) / 2.0 * LINE_HEIGHT;
        (0..group.1).map(move |nth| first + nth as f64 * LINE_HEIGHT)
    });
    let mut labels = vec![Label { text: (x, 0.0), leader: None }; ends.len()];
    for (nth, y) in order.into_iter().zip(tops) {
        let end = (ends[nth].0 + 6.0, ends[nth].1);
        labels[nth] = Label { text: (x, y), leader: Some((end, (x - 4.0, y))) };
    }
    labels
}

/// Places a name of some pixels beside each point: inside of the frame, on no other name and no
/// point if that can be.
///
/// The last ones choose first, as they matter most.
pub(super) fn around(points: &[(f64, f64, f64)], frame: Frame) -> Vec<Label> {
    let marks: Vec<Frame> = points.iter().map(|(x, y, _)| (x - 6.0, y - 6.0, x + 6.0, y + 6.0)).collect();
    let mut taken: Vec<Frame> = Vec::new();
    let mut labels: Vec<Label> = Vec::with_capacity(points.len());
    for (nth, &(x, y, wide)) in points.iter().enumerate().rev() {
        let others: Vec<Frame> = (0..points.len()).filter(|it| *it != nth).map(|it| marks[it]).collect();
        let high = LINE_HEIGHT;
        let costs = candidates().map(|(far, (dx, dy))| {
            // The middle of the text: so far off that its edge is `far` from the point.
            let (cx, cy) = (x + dx * (far + wide / 2.0), y + dy * (far + high / 2.0));
            let area = (cx - wide / 2.0, cy - high / 2.0, cx + wide / 2.0, cy + high / 2.0);
            let on: f64 = taken.iter().chain(&others).map(|it| shared(area, *it)).sum();
            let outside = wide * high - shared(area, frame);
            (10.0 * on + 50.0 * outside + far, area)
        });
        let best = costs.min_by(|a, b| a.0.total_cmp(&b.0));
        let (_, area) = best.expect("there is always a candidate");
        let near = (x.clamp(area.0, area.2), y.clamp(area.1 + 3.0, area.3 - 3.0));
        let far = (near.0 - x).hypot(near.1 - y) > 12.0;
        labels.push(Label { text: (area.0, (area.1 + area.3) / 2.0), leader: far.then_some(((x, y), near)) });
        taken.push(area);
    }
    labels.reverse();
    labels
}

/// How far from its point a name may go, and where to: near ones and the sides first.
fn candidates() -> impl Iterator<Item = (f64, (f64, f64))> {
    const TOWARD: [(f64, f64); 12] = [
        (1.0, 0.0),
        (-1.0, 0.0),
        (0.0, -1.0),
        (0.0, 1.0),
        (0.7, -0.9),
        (0.7, 0.9),
        (-0.7, -0.9),
        (-0.7, 0.9),
        (1.0, -0.5),
        (1.0, 0.5),
        (-1.0, -0.5),
        (-1.0, 0.5),
    ];
    (0..14).flat_map(|ring| TOWARD.map(|toward| (7.0 + f64::from(ring) * 9.0, toward)))
}

#[cfg(test)]
mod tests {
    use super::super::canvas::width;
    use super::*;

    #[test]
    fn names_of_lines_that_end_together_are_apart_and_in_order() {
        let ends = [(100.0, 50.0), (100.0, 52.0), (100.0, 51.0), (100.0, 300.0), (100.0, 2.0)];
        let labels = beside(&ends, 120.0, (0.0, 310.0));
        let mut by_end: Vec<_> = ends.iter().zip(&labels).map(|(end, place)| (end.1, place.text.1)).collect();
        by_end.sort_by(|a, b| a.0.total_cmp(&b.0));
        for pair in by_end.windows(2) {
            assert!(pair[1].1 - pair[0].1 >= LINE_HEIGHT - 1e-9, "{by_end:?}");
        }
        assert!((by_end[4].1 - 300.0).abs() < 4.0, "one alone stays where it is: {by_end:?}");
    }

    #[test]
    fn names_of_points_don_t_cover_each_other() {
        let names = ["lru", "fifo", "s3fifo", "wtinylfu", "flashfront", "belady", "clock", "sieve"];
        let points: Vec<_> = names
            .iter()
            .zip(0..)
            .map(|(name, nth)| (200.0 + f64::from(nth % 3) * 4.0, 150.0 + f64::from(nth), width(name)))
            .collect();
        let labels = around(&points, (0.0, 0.0, 400.0, 300.0));
        let area = |nth: usize| {
            let (x, y) = labels[nth].text;
            (x, y - LINE_HEIGHT / 2.0, x + width(names[nth]), y + LINE_HEIGHT / 2.0)
        };
        for (nth, name) in names.iter().enumerate() {
            assert!((0..nth).all(|other| shared(area(nth), area(other)) == 0.0), "{name}: {labels:?}");
        }
    }
}
