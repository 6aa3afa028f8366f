// SPDX-License-Identifier: MIT OR Apache-2.0
//! Decisions made of an input: small numbers in their order, so that a changed byte changes one of
//! them.
//!
//! The crate arbitrary takes them from the front of the input. Behind the end all are 0, so every
//! input means something, and a cut one a prefix of it. Only `below` is ours. Here a bound of 1
//! takes a byte, too, so what follows does not depend on the number of choices.

use arbitrary::Unstructured;

/// The rest of an input.
pub(crate) struct Bytes<'a>(Unstructured<'a>);

impl<'a> Bytes<'a> {
    pub(crate) fn new(input: &'a [u8]) -> Self {
        Self(Unstructured::new(input))
    }

    /// Up to `len` bytes.
    pub(crate) fn take(&mut self, len: usize) -> &'a [u8] {
        self.0.bytes(len.min(self.0.len())).expect("no more is asked for than there is")
    }

    /// A little-endian number of `bytes` bytes, at most 8.
    pub(crate) fn number(&mut self, bytes: usize) -> u64 {
        let mut value = [0; 8];
        self.0.fill_buffer(&mut value[..bytes]).expect("an input that ends goes on with zeroes");
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

    /// Bytes that are left.
    pub(crate) fn len(&self) -> usize {
        self.0.len()
    }

    /// Whether the input is used up.
    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use super::Bytes;

    #[test]
    fn a_cut_input_goes_on_with_zeroes() {
        let mut bytes = Bytes::new(&[1, 2, 3, 7]);
        assert_eq!((bytes.u8(), bytes.u16(), bytes.below(4)), (1, 0x0302, 3));
        assert!(bytes.is_empty());
        assert_eq!((bytes.number(8), bytes.below(0), bytes.pick(&[5, 6])), (0, 0, 5));
        assert_eq!(Bytes::new(&[9, 1]).number(4), 0x0109, "what is there counts");
    }
}
