// SPDX-License-Identifier: MIT OR Apache-2.0
//! Results as CSV: a line for each target and job.

use flashfront_bench::{Direction, Results, Row};

const COLUMNS: &str = "target,job,iops,bandwidth_kib_s,p50_us,p99_us,repeats,spread,ratio,ratio_least,ratio_largest,\
read_iops,read_p50_us,read_p99_us,write_iops,write_p50_us,write_p99_us,quiet";

pub(super) fn text(results: &Results) -> String {
    let lines = results.results.iter().map(line);
    [COLUMNS.to_owned()].into_iter().chain(lines).map(|line| line + "\n").collect()
}

fn line(row: &Row) -> String {
    let figure = |value: Option<f64>| value.map_or_else(String::new, |it| format!("{it:.6}"));
    let ratio = row.ratio.as_ref();
    let direction = |direction| {
        let figures = row.directions.get(&direction);
        [figures.map(|it| it.iops), figures.map(|it| it.p50_us), figures.map(|it| it.p99_us)]
    };
    let mut cells = vec![quoted(&row.target), quoted(&row.job)];
    cells.extend([row.iops, row.bandwidth_kib_s, row.p50_us, row.p99_us].map(|it| figure(Some(it))));
    cells.push(row.repeats.to_string());
    cells.push(figure(Some(row.spread)));
    cells.extend([ratio.map(|it| it.median), ratio.map(|it| it.least), ratio.map(|it| it.largest)].map(figure));
    cells.extend([Direction::Read, Direction::Write].into_iter().flat_map(direction).map(figure));
    cells.push(row.runs.iter().all(|run| run.disturbed.is_empty()).to_string());
    cells.join(",")
}

/// A text as one cell (RFC 4180).
fn quoted(text: &str) -> String {
    if text.contains([',', '"', '\n']) { format!("\"{}\"", text.replace('"', "\"\"")) } else { text.to_owned() }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_cell_may_hold_anything() {
        assert_eq!(
            (&*quoted("a b"), &*quoted("random read, 32 \"deep\"")),
            ("a b", "\"random read, 32 \"\"deep\"\"\"")
        );
    }
}
