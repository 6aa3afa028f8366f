// SPDX-License-Identifier: MIT OR Apache-2.0
//! Ranges of objects that lie near each other come by one request.

/// Ranges with gaps up to this size are fetched by one request.
const GAP_BYTES: u64 = 64 << 10;

/// A range of an object.
pub(crate) trait Placed {
    /// Number of the object in the table.
    fn object(&self) -> u32;
    /// First byte, and the end.
    fn span(&self) -> (u64, u64);
}

/// First byte, and the end, of ranges of one object.
pub(crate) fn span(ranges: &[impl Placed]) -> (u64, u64) {
    let from = ranges.iter().map(|it| it.span().0).min().unwrap_or(0);
    let to = ranges.iter().map(|it| it.span().1).max().unwrap_or(0);
    (from, to)
}

/// Cuts ranges into parts that one request each can fetch. A request has at most this many bytes,
/// unless one range has more.
pub(crate) fn requests<T: Placed>(mut ranges: Vec<T>, bytes_max: u64) -> Vec<Vec<T>> {
    ranges.sort_by_key(|it| (it.object(), it.span()));
    let mut requests: Vec<Vec<T>> = Vec::new();
    // First byte and end of the last request.
    let (mut from, mut to) = (0, 0);
    for range in ranges {
        let (at, end) = range.span();
        let is_near = |it: &&mut Vec<T>| it[0].object() == range.object() && to + GAP_BYTES >= at;
        let last = requests.last_mut().filter(is_near);
        if let Some(request) = last.filter(|_| end.max(to) - from <= bytes_max) {
            to = to.max(end);
            request.push(range);
        } else {
            (from, to) = (at, end);
            requests.push(vec![range]);
        }
    }
    requests
}

#[cfg(test)]
mod tests {
    use super::*;

    impl Placed for (u32, u64, u64) {
        fn object(&self) -> u32 {
            self.0
        }

        fn span(&self) -> (u64, u64) {
            (self.1, self.1 + self.2)
        }
    }

    #[test]
    fn ranges_near_each_other_come_together_and_others_alone() {
        let near = GAP_BYTES;
        let ranges = vec![
            (2, 0, 100),
            (1, 100 + near, 100),
            (1, 0, 100),
            (1, 201 + 2 * near, 700_000),
            (1, 201 + 2 * near + 700_000, 400_000),
        ];
        let found = requests(ranges.clone(), 1_000_000);
        let wanted = [vec![ranges[2], ranges[1]], vec![ranges[3]], vec![ranges[4]], vec![ranges[0]]];
        assert_eq!(found, wanted);
        assert_eq!(span(&found[0]), (0, 200 + near));
        assert_eq!(requests(vec![(1, 0, 5_000_000)], 1_000_000).len(), 1, "a long one comes all the same");
    }
}
