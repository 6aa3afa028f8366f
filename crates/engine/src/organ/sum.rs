// SPDX-License-Identifier: MIT OR Apache-2.0
//! A sum that lanes add to, each for itself where they work at the same time.

/// A sum. What one lane has added may be less than nothing: the sum wraps, and is right again when
/// all have been taken over.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Sum(u64);

impl Sum {
    /// The value, of the sum over all lanes.
    pub(crate) const fn get(self) -> u64 {
        self.0
    }

    pub(crate) const fn add(&mut self, number: u64) {
        self.0 = self.0.wrapping_add(number);
    }

    pub(crate) const fn sub(&mut self, number: u64) {
        self.0 = self.0.wrapping_sub(number);
    }

    pub(crate) const fn change(&mut self, by: i64) {
        self.0 = self.0.wrapping_add_signed(by);
    }

    /// Takes over what a lane has added, which begins at nothing again.
    pub(crate) const fn take_over(&mut self, of: &mut Self) {
        self.add(of.0);
        of.0 = 0;
    }
}

#[cfg(test)]
mod tests {
    use super::Sum;

    #[test]
    fn what_a_lane_takes_away_counts_when_it_is_taken_over() {
        let (mut all, mut lane) = (Sum(7), Sum::default());
        lane.sub(5);
        lane.change(-1);
        all.add(1);
        all.take_over(&mut lane);
        all.take_over(&mut lane);
        assert_eq!(all.get(), 2);
    }
}
