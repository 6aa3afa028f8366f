// SPDX-License-Identifier: MIT OR Apache-2.0
//! A real trace goes through the whole reader. The figures are those that other tools found in it.

use std::collections::HashSet;
use std::fs::File;
use std::path::Path;

use flashfront_sim::trace::{Grid, GridFinder, Op, Options, Reader};

#[test]
fn a_real_trace_has_the_known_figures() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/data/windows-shared-server.load.gz");
    let reader = Reader::new(File::open(&path).unwrap(), &Options::default()).unwrap();
    assert_eq!(reader.format().name, "blkreplay");
    let (phases, mut records) = GridFinder::ahead(reader, GridFinder::REQUESTS);
    let (mut requests, mut accesses, mut blocks, mut sectors) = (0, 0, HashSet::new(), 0);
    for record in records.by_ref() {
        let record = record.unwrap();
        assert!(record.op == Op::Write && record.time_ns.unwrap() < 3_700_000_000_000);
        requests += 1;
        sectors += record.sectors;
        for access in Grid::ALIGNED.accesses(&record) {
            accesses += 1;
            blocks.insert(access.block);
        }
    }
    assert_eq!((requests, accesses, blocks.len(), sectors / 2048), (1371, 1381, 266, 5));
    assert_eq!(phases.grid(), Grid::ALIGNED);
    let report = records.get_ref().report();
    assert_eq!((report.records, report.bad, report.skipped_total()), (1371, 0, 32));
    assert_eq!(records.get_ref().input_bytes(), path.metadata().unwrap().len());
}
