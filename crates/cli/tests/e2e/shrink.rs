// SPDX-License-Identifier: MIT OR Apache-2.0
//! A stopped cache shrinks, by the command that operators type, which is killed again and again.

use std::fs::File;
use std::process::Stdio;

use crate::harness::{MIB, Random, Volume, flashfront, must, output, show};
use crate::volumes::json;

const CHUNK: usize = 64 << 10;

#[test]
fn a_cache_shrinks_though_it_is_killed_again_and_again() {
    let mut volume = Volume::served(48, 64, "writeback");
    let mut random = Random::new(21);
    let mut expected = vec![0; 64 * MIB as usize];
    let mut client = volume.connect();
    let write = |client: &mut flashfront_serve::frontend::nbd::Client, expected: &mut [u8], random: &mut Random| {
        for _ in 0..150 {
            let at = random.below(expected.len() as u64 / CHUNK as u64) as usize * CHUNK;
            expected[at..][..CHUNK].copy_from_slice(&random.bytes(CHUNK));
            client.write_at(at as u64, &expected[at..][..CHUNK], false).expect("the volume can be written");
        }
        client.flush().expect("the volume can be flushed");
    };
    // The first part becomes clean, and the second one stays dirty.
    write(&mut client, &mut expected, &mut random);
    volume.drain();
    write(&mut client, &mut expected, &mut random);
    drop(client);
    volume.stop();

    let cache = volume.cache.clone();
    let shrink = |size: &str| {
        let mut command = flashfront();
        command.args(["cache", "shrink", size, "--cache"]).arg(&cache);
        command
    };
    let refused = output(&mut shrink("4MiB"));
    let said = String::from_utf8_lossy(&refused.stderr).into_owned();
    assert!(said.contains("the smallest that it can have now is"), "{}", show(&refused));
    for size in [40_u64, 32] {
        for _ in 0..5 {
            let mut command = shrink(&format!("{size}MiB"));
            let mut child = command.stdout(Stdio::null()).stderr(Stdio::null()).spawn().expect("a program");
            for _ in 0..random.below(3000) {
                std::thread::yield_now();
            }
            child.kill().expect("the child is ours");
            child.wait().expect("the child is ours");
        }
        let done = json(&must(shrink(&format!("{size}MiB")).arg("--json")));
        assert_eq!(done["done"], true, "{done}");
        let device = File::options().write(true).open(&volume.cache).expect("it is ours");
        device.set_len(size * MIB).expect("it is ours");
        volume.assert_sound();
        volume.start();
        let mut client = volume.connect();
        let mut seen = vec![0; expected.len()];
        for (at, part) in (0..).step_by(MIB as usize).zip(seen.chunks_mut(MIB as usize)) {
            client.read_at(at, part).expect("the volume can be read");
        }
        assert!(seen == expected, "at {size} MiB");
        write(&mut client, &mut expected, &mut random);
        drop(client);
        volume.kill9();
        volume.start();
        volume.stop();
    }
    volume.start();
    volume.drain();
    volume.stop();
    assert!(std::fs::read(&volume.origin).expect("it is ours") == expected, "the origin is complete");
}
