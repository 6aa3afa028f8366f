// SPDX-License-Identifier: MIT OR Apache-2.0
//! Decisions made of an input: small numbers in their order, so that a changed byte changes one of
//! them.
//!
//! Behind the end all are 0: every input means something, and a cut one a prefix of it. The crate
//! arbitrary takes lengths from the end of an input, so that a cut input would mean something else.

/// What is left of an input.
pub(crate) struct Bytes<'a>(pub(crate) &'a [u8]);

impl<'a> Bytes<'a> {
    /// Up to so many bytes.
    pub(crate) fn take(&mut self, len: usize) -> &'a [u8] {
        let (head, rest) = self.0.split_at(len.min(self.0.len()));
        self.0 = rest;
        head
    }

    /// A little-endian number of so many bytes, at most 8.
    pub(crate) fn number(&mut self, bytes: usize) -> u64 {
        let mut value = [0; 8];
        let head = self.take(bytes);
        value[..head.len()].copy_from_slice(head);
        u64::from_le_bytes(value)
    }

    pub(crate) fn u8(&mut self) -> u8 {
        self.number(1) as u8
    }

    pub(crate) fn u16(&mut self) -> u16 {
        self.number(2) as u16
    }

    /// A number below `end`, or 0.
    pub(crate) fn below(&mut self, end: u64) -> u64 {
        let bytes = if end <= 1 << 8 { 1 } else { 2 };
        self.number(bytes).checked_rem(end).unwrap_or(0)
    }

    /// Picks one of these.
    pub(crate) fn pick<T: Copy>(&mut self, from: &[T]) -> T {
        from[self.below(from.len() as u64) as usize]
    }
}

#[cfg(test)]
mod tests {
    use super::Bytes;

    #[test]
    fn a_cut_input_goes_on_with_zeroes() {
        let mut bytes = Bytes(&[1, 2, 3, 7]);
        assert_eq!((bytes.u8(), bytes.u16(), bytes.below(4)), (1, 0x0302, 3));
        assert!(bytes.0.is_empty());
        assert_eq!((bytes.number(8), bytes.below(0), bytes.pick(&[5, 6])), (0, 0, 5));
    }
}
