// SPDX-License-Identifier: MIT OR Apache-2.0
//! Lists of extents in a buffer: which parts of a range are holes.
//!
//! A device writes such a list for [`crate::Op::Map`], and the engine for
//! [`crate::RequestOp::Map`]. Extents follow each other without gaps. Each is one word of 8 bytes;
//! a word of 0 or the end of the buffer ends the list. A list that ends before its range says
//! nothing of the rest.

/// Bytes of an extent in a list.
const WORD: usize = size_of::<u64>();

/// A part of a range.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Extent {
    /// How long this part is; at most 2^63 - 1.
    pub bytes: u64,
    /// Whether this part takes no space and reads as zeroes.
    pub hole: bool,
}

/// Writes extents into a buffer, neighbours of one kind as one, as far as there is room. Returns
/// how many bytes of the range the list tells of.
pub fn put_extents(into: &mut [u8], extents: impl IntoIterator<Item = Extent>) -> u64 {
    let (mut told, mut count) = (0, 0);
    let mut last: Option<Extent> = None;
    let mut words = into.chunks_exact_mut(WORD);
    let mut put = |extent: Extent| {
        let Some(word) = words.next() else { return 0 };
        word.copy_from_slice(&(extent.bytes << 1 | u64::from(extent.hole)).to_ne_bytes());
        count += 1;
        extent.bytes
    };
    for extent in extents.into_iter().filter(|extent| extent.bytes > 0) {
        match &mut last {
            Some(last) if last.hole == extent.hole => last.bytes += extent.bytes,
            _ => {
                if let Some(whole) = last.replace(extent) {
                    let bytes = put(whole);
                    told += bytes;
                    if bytes == 0 {
                        last = None;
                        break;
                    }
                }
            }
        }
    }
    told += last.map_or(0, put);
    if let Some(end) = into.get_mut(count * WORD..(count + 1) * WORD) {
        end.fill(0);
    }
    told
}

/// The extents of a list.
pub fn extents(from: &[u8]) -> impl Iterator<Item = Extent> + '_ {
    let words = from.as_chunks::<WORD>().0.iter().map(|word| u64::from_ne_bytes(*word));
    words.take_while(|word| *word > 1).map(|word| Extent { bytes: word >> 1, hole: word & 1 == 1 })
}

/// What two lists say together: a hole is where both have one. The result ends where the shorter of
/// them does.
pub(crate) fn holes_of_both(
    one: impl Iterator<Item = Extent>,
    other: impl Iterator<Item = Extent>,
) -> impl Iterator<Item = Extent> {
    let (mut one, mut other) = (one.peekable(), other.peekable());
    let (mut one_used, mut other_used) = (0, 0);
    core::iter::from_fn(move || {
        let (first, second) = (*one.peek()?, *other.peek()?);
        let bytes = (first.bytes - one_used).min(second.bytes - other_used);
        one_used += bytes;
        other_used += bytes;
        if one_used == first.bytes {
            one_used = 0;
            one.next();
        }
        if other_used == second.bytes {
            other_used = 0;
            other.next();
        }
        Some(Extent { bytes, hole: first.hole && second.hole })
    })
}

#[cfg(test)]
mod tests {
    use alloc::vec::Vec;

    use super::*;

    const fn hole(bytes: u64) -> Extent {
        Extent { bytes, hole: true }
    }

    const fn data(bytes: u64) -> Extent {
        Extent { bytes, hole: false }
    }

    #[test]
    fn a_list_is_what_was_put_into_it() {
        let mut bytes = [0xff; 40];
        let told = put_extents(&mut bytes, [hole(5), hole(3), data(0), data(7), hole(9)]);
        assert_eq!(told, 24);
        assert_eq!(extents(&bytes).collect::<Vec<_>>(), [hole(8), data(7), hole(9)]);
        // Where there is no room the list ends, and says so.
        for room in 0..3 {
            let mut bytes = [0xff; 24];
            let told = put_extents(&mut bytes[..room * 8], [hole(8), data(7), hole(9)]);
            let list: Vec<_> = extents(&bytes[..room * 8]).collect();
            assert_eq!(list, [hole(8), data(7), hole(9)][..room]);
            assert_eq!(told, list.iter().map(|it| it.bytes).sum::<u64>());
        }
    }

    #[test]
    fn a_hole_of_both_is_a_hole() {
        let one = [hole(10), data(10), hole(10)];
        let other = [data(5), hole(20), data(1)];
        let both: Vec<_> = holes_of_both(one.into_iter(), other.into_iter()).collect();
        assert_eq!(both, [data(5), hole(5), data(10), hole(5), data(1)]);
    }
}
