// SPDX-License-Identifier: MIT OR Apache-2.0
//! Circles in a graph: the nodes that reach each other.

/// Finds all circles of two nodes or more, the largest first. `arrows` has the targets of each
/// node.
///
/// Each node is looked at from each other one. A crate has some hundred files, so that takes
/// milliseconds.
pub(super) fn circles(arrows: &[Vec<usize>]) -> Vec<Vec<usize>> {
    let reached: Vec<Vec<bool>> = (0..arrows.len()).map(|from| reached(arrows, from)).collect();
    let mut placed = vec![false; arrows.len()];
    let mut found = Vec::new();
    for node in 0..arrows.len() {
        let circle: Vec<usize> =
            (node..arrows.len()).filter(|&other| reached[node][other] && reached[other][node]).collect();
        if circle.len() > 1 && !placed[node] {
            circle.iter().for_each(|&member| placed[member] = true);
            found.push(circle);
        }
    }
    found.sort_by_key(|circle| std::cmp::Reverse(circle.len()));
    found
}

/// The nodes that can be reached from `from`, itself among them.
fn reached(arrows: &[Vec<usize>], from: usize) -> Vec<bool> {
    let mut reached = vec![false; arrows.len()];
    let mut open = vec![from];
    while let Some(node) = open.pop() {
        if !std::mem::replace(&mut reached[node], true) {
            open.extend(&arrows[node]);
        }
    }
    reached
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_reaches_itself_over_others_is_a_circle() {
        // 0 -> 1 -> 2 -> 0; 3 <-> 4; 5 -> 0; 6 -> 6.
        let arrows = [vec![1], vec![2], vec![0, 3], vec![4], vec![3], vec![0], vec![6]];
        assert_eq!(circles(&arrows), [vec![0, 1, 2], vec![3, 4]]);
        assert_eq!(circles(&[vec![1, 2], vec![2], vec![]]), Vec::<Vec<usize>>::new());
    }

    #[test]
    fn a_second_way_joins_two_circles() {
        let arrows = [vec![1], vec![0, 2], vec![3], vec![2, 0]];
        assert_eq!(circles(&arrows), [[0, 1, 2, 3]]);
    }
}
