// SPDX-License-Identifier: MIT OR Apache-2.0
//! Some lives of volumes in an object store, in each run of the tests. `cargo x torture --objects`
//! lives many more.

use flashfront_proof::objects::live;

#[test]
fn volumes_in_a_store_keep_their_promises() {
    for seed in 0..16 {
        let lived = live(seed).unwrap_or_else(|failure| panic!("cargo x torture --objects --seed {seed}: {failure}"));
        assert!(lived.looks > 0, "seed {seed} has seen nothing: {lived:?}");
    }
}
