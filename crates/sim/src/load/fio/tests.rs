// SPDX-License-Identifier: MIT OR Apache-2.0
//! Job files as the published comparisons have them, and what is refused.

use super::*;
use crate::load::{Lengths, Pattern};

const GIB: u64 = 1 << 30;
const VOLUME: u64 = 4000 * GIB;

/// The variables of the tests.
fn variable(name: &str) -> Option<String> {
    (name == "SIZE").then(|| "3g".to_owned())
}

fn good(text: &str) -> JobFile {
    read(text, VOLUME, &variable).unwrap_or_else(|error| panic!("{error}\n{text}"))
}

/// The only job of a file that has one.
fn only(text: &str) -> Job {
    let file = good(text);
    assert_eq!((file.phases.len(), file.phases[0].jobs.len()), (1, 1), "{text}");
    file.phases[0].jobs[0].clone()
}

#[test]
fn the_tasks_of_2015_are_what_they_were() {
    let job = only(
        "[1sr128k]\nrw=read\nfilename=/dev/sdc\nbs=128k\nioengine=libaio\niodepth=1\nsize=8g\noffset=1g\ndirect=1",
    );
    let expected = Job {
        name: "1sr128k".to_owned(),
        block_bytes: 128 << 10,
        offset_bytes: GIB,
        span_bytes: 8 * GIB,
        total_bytes: 8 * GIB,
        ..Job::default()
    };
    assert_eq!(job, expected);
    // With a filesize, size is only how much is asked for.
    let job = only(
        "[32rrw8k]\nrw=randrw\nrwmixread=67\nfilename=/dev/sdc\nbs=8k\nioengine=libaio\niodepth=32\nfilesize=9g\nsize=4g\noffset=1g\ndirect=1",
    );
    let expected = Job {
        name: "32rrw8k".to_owned(),
        pattern: Pattern::Random,
        read_percent: 67,
        block_bytes: 8192,
        depth: 32,
        total_bytes: 4 * GIB,
        ..expected
    };
    assert_eq!(job, expected);
}

#[test]
fn clones_of_a_synchronous_job_have_one_request_each_and_go_their_own_way() {
    let file = good(
        "[global]\nthread\ngroup_reporting\ngtod_reduce=1\ndirect=1\n[w]\nrw=randwrite\nfilename=/dev/ada2\nnumjobs=32\niodepth=8\nsize=128m\nfilesize=25g\noffset=17g\nthread\n",
    );
    let jobs = &file.phases[0].jobs;
    assert_eq!(jobs.len(), 32);
    assert!(jobs.iter().all(|job| job.name == "w" && job.depth == 1 && job.total_bytes == 128 << 20));
    assert!(jobs.iter().all(|job| (job.offset_bytes, job.span_bytes) == (17 * GIB, 8 * GIB)), "all over one range");
    let mut seeds: Vec<u64> = jobs.iter().map(|job| job.seed).collect();
    seeds.dedup();
    assert_eq!(seeds.len(), 32);
    assert_eq!(file.without_effect, ["thread", "group_reporting", "gtod_reduce"], "each once");
    assert!(file.buffered.is_empty());
}

#[test]
fn the_jobs_of_2017_end_by_time_and_have_files_of_their_own() {
    let file = good(
        "[global]\nioengine=libaio\ndirect=1\niodepth=8\nnumjobs=2\nrw=randread\nrandom_distribution=zipf:1.2\nbs=4k\nsize=2g\nunlink=1\nruntime=30m\ntime_based=1\nwrite_iops_log=out\n[job1]\n[job2]\nstonewall\n",
    );
    let names: Vec<&str> = file.phases.iter().map(|phase| &*phase.name).collect();
    assert_eq!(names, ["job1", "job2"]);
    let places = file.phases.iter().flat_map(|phase| &phase.jobs).map(|job| job.offset_bytes / GIB);
    assert_eq!(places.collect::<Vec<_>>(), [0, 2, 4, 6]);
    let job = &file.phases[1].jobs[1];
    assert_eq!((job.pattern, job.total_bytes, job.time_ns, job.depth), (Pattern::Zipf(1.2), 0, 1_800_000_000_000, 8));
    assert_eq!(file.without_effect, ["unlink", "write_iops_log"]);
}

#[test]
fn jobs_run_together_until_a_stonewall() {
    let file = good(
        "[a]\nsize=1g\nfilename=f\n[b]\nsize=2g\nfilename=f\nrw=write\n[c]\nstonewall=1\nsize=1m\nstartdelay=5\n[d]\nsize=1m\nfilename=g\nstartdelay=5s\n",
    );
    let phases: Vec<_> = file.phases.iter().map(|phase| (&*phase.name, phase.idle_ns, phase.jobs.len())).collect();
    assert_eq!(phases, [("a + b", 0, 2), ("c + d", 5_000_000_000, 2)]);
    // One name is one file, as long as its longest job.
    let places: Vec<u64> = file.phases.iter().flat_map(|phase| &phase.jobs).map(|job| job.offset_bytes).collect();
    assert_eq!(places, [0, 0, 2 * GIB, 2 * GIB + (1 << 20)]);
    assert_eq!(file.buffered, ["a", "b", "c", "d"]);
}

#[test]
fn what_is_said_last_holds_and_globals_hold_for_what_comes_after() {
    let file = good(
        "# a comment\n[global]\nbs=8k\nsize=1g\n\n[a]\nbs = 16k\n bs=64k\n; another\n[global]\nbs=4k\nrw=randwrite\nnorandommap\n[b]\nfsync=32\nloops=3\n",
    );
    let jobs = &file.phases[0].jobs;
    assert_eq!((jobs[0].block_bytes, jobs[0].pattern, jobs[0].read_percent), (64 << 10, Pattern::Sequential, 100));
    assert_eq!((jobs[1].block_bytes, jobs[1].pattern, jobs[1].read_percent), (4096, Pattern::Uniform, 0));
    assert_eq!((jobs[1].writes_per_flush, jobs[1].total_bytes), (32, 3 * GIB));
}

#[test]
fn the_rest_of_the_options_mean_what_fio_means() {
    let job = |options: &str| only(&format!("[j]\nfilename=/dev/x\n{options}\n"));
    assert_eq!(job("").total_bytes, VOLUME, "a volume to its end");
    assert_eq!(job("offset=1g").span_bytes, VOLUME - GIB);
    assert_eq!((job("size=1g\nio_size=4g").span_bytes, job("size=1g\nio_size=4g").total_bytes), (GIB, 4 * GIB));
    let both = job("size=1g\nruntime=10");
    assert_eq!((both.total_bytes, both.time_ns), (GIB, 10_000_000_000), "the first of both");
    assert_eq!((job("rw=randrw").read_percent, job("rwmixwrite=20\nrw=rw").read_percent), (50, 80));
    assert_eq!(job("rw=randread\nrandom_distribution=pareto:0.2").pattern, Pattern::Pareto(0.2));
    assert_eq!(job("random_distribution=zipf:0.9").pattern, Pattern::Sequential, "it is about random jobs");
    assert_eq!((job("iodepth=8").depth, job("iodepth=8\nioengine=io_uring").depth), (1, 8));
    assert_eq!((job("").rate_per_s, job("rate_iops=200,30").rate_per_s), (0.0, 200.0));
    assert_eq!(job("rw=write\nrate_iops=200,30").rate_per_s, 30.0);
    assert_eq!(job("rw=randrw\nrwmixread=70\nrate_iops=140,60").rate_per_s, 200.0);
    assert_eq!((job("rate=1m").rate_per_s, job("rate=1m\nbs=64k").rate_per_s), (256.0, 16.0));
    // kb_base holds for the sizes before it too.
    assert_eq!(job("size=1Gi\nkb_base=1000").span_bytes, GIB);
    let clones = good("[j]\nfilename=/dev/x\nnumjobs=3\nsize=1g\noffset=1g\noffset_increment=10g\n");
    let places: Vec<u64> = clones.phases[0].jobs.iter().map(|job| job.offset_bytes / GIB).collect();
    assert_eq!(places, [1, 11, 21]);
}

#[test]
fn fio_cuts_a_line_at_a_semicolon_and_at_a_hash() {
    let job = only(
        "[global] # all\nsize=${SIZE}  # three\nruntime=10 ; seconds\n[a] ; the only one\niodepth=4;x\nioengine=libaio#y\n",
    );
    assert_eq!((&*job.name, job.span_bytes, job.time_ns, job.depth), ("a", 3 * GIB, 10_000_000_000, 4));
}

#[test]
fn lengths_distributions_ramps_and_pauses_are_part_of_the_job() {
    let job = |options: &str| only(&format!("[j]\nfilename=/dev/x\n{options}\n"));
    let split = job("rw=randrw\nbssplit=4k/60:64k/40,8k/100");
    assert_eq!(split.block_bytes, 4096);
    assert_eq!(split.read_lengths, Lengths::Split(vec![(4096, 6000), (65536, 4000)]));
    assert_eq!(split.write_lengths, Lengths::Split(vec![(8192, 10000)]));
    let range = job("rw=randread\nbsrange=4k-16k");
    assert_eq!(range.read_lengths, Lengths::Range { least: 4096, most: 16384, step: 4096 });
    assert_eq!((job("bs=4k,64k").block_bytes, job("rw=write\nbs=4k,64k").block_bytes), (4096, 65536));
    let ramp = job("runtime=10\nramp_time=3\nthinktime=2000\nthinktime_blocks=4");
    assert_eq!(
        (ramp.time_ns, ramp.ramp_ns, ramp.think_ns, ramp.think_requests),
        (13_000_000_000, 3_000_000_000, 2_000_000, 4)
    );
    assert_eq!(job("rw=randread:8").run_requests, 8);
    assert_eq!((job("rw=read:8k").gap_bytes, job("rw=read:-8k").gap_bytes), (8192, -8192));
    assert_eq!((job("size=50%").span_bytes, job("nrfiles=4").streams), (VOLUME / 2, 4));
    assert_eq!((job("sync=1").writes_per_flush, job("buffered=0").writes_per_flush), (1, 0));
    assert!(job("rw=write\nverify=crc32c").rereads && !job("rw=write\nverify=crc32c\ndo_verify=0").rereads);
    assert!(!job("rw=read\nverify=crc32c").rereads);
    // fio keeps both rates, whatever the mix says.
    let mixed = job("rw=randrw\nrwmixread=70\nrate_iops=100,300");
    assert_eq!((mixed.rate_per_s, mixed.read_percent), (400.0, 25));
}

#[test]
fn what_is_not_as_fio_has_it_is_named() {
    let file = good(
        "[global]\nioengine=libaio\nsize=1m\n[a]\nfilename=/dev/sda\nzonemode=zbd\nverify_fatal=1\n[b]\nfilename=/dev/sdb\nbs=512\nrw=randwrite\nstartdelay=5\n[t]\nstonewall\nrw=randtrim\n[c]\nioengine=rbd\n",
    );
    let phases: Vec<_> = file.phases.iter().map(|phase| (&*phase.name, phase.idle_ns, phase.jobs.len())).collect();
    assert_eq!(phases, [("a + b", 0, 2), ("c", 0, 1)], "a stonewall holds though its job is left out");
    assert_eq!((file.phases[0].jobs[1].start_ns, file.phases[0].jobs[1].offset_bytes), (5_000_000_000, VOLUME / 2));
    assert_eq!((file.left_out, file.without_effect), (vec!["zonemode".to_owned()], vec!["verify_fatal".to_owned()]));
    let notes = file.notes.join("; ");
    for words in ["/dev/sda, /dev/sdb are equal parts", "job `t` is left out", "job `b`: parts of blocks"] {
        assert!(notes.contains(words), "{words} is missing: {notes}");
    }
}

#[test]
fn what_would_be_another_load_is_refused_with_line_and_advice() {
    for (text, line, words) in [
        ("", 0, &["no job", "[NAME]"][..]),
        ("[global]\nbs=4k\n", 0, &["no job"]),
        ("bs=4k\n[a]\nsize=1g", 1, &["`bs`", "no section"]),
        ("[a\nsize=1g", 1, &["`[a`", "[NAME]"]),
        ("[a]\nsize=1g\niodept=4", 3, &["`iodept`", "unknown", "docs/laboratory/scenarios.md"]),
        ("[a]\nsize=1g\nbssplit=4k/60:8k/50", 3, &["`bssplit`", "`4k/60:8k/50`", "4k/60:64k/40"]),
        ("include other.fio\n[a]\nsize=1g", 1, &["`include`", "into this file"]),
        ("[a]\nsize=${BYTES}", 2, &["`size`", "BYTES is not set"]),
        ("[a]\nsize=1x", 2, &["`size`", "`1x`", "128k"]),
        ("[a]\nsize=150%", 2, &["`size`", "`150%`"]),
        ("[a]\nrw=trim\nsize=1g", 0, &["nothing is left", "job `a`", "trims"]),
        ("[a]\nioengine=cpuio", 0, &["nothing is left", "ioengine=cpuio"]),
        ("[a]\nrw=reed\nsize=1g", 2, &["`rw`", "`reed`", "randrw"]),
        ("[a]\nsize=1g\nbs=4k,8x", 3, &["`bs`", "4k,64k"]),
        ("[a]\nsize=1g\nioengine=libiao", 3, &["`ioengine`", "`libiao`", "libaio"]),
        ("[a]\nsize=1g\niodepth=0", 3, &["`iodepth`", "at least 1"]),
        ("[a]\nsize=1g\nrandom_distribution=zipf", 3, &["zipf:THETA"]),
        ("[a]\nsize=1g\nrandom_distribution=pareto:1.5", 3, &["pareto:H"]),
        ("[a]\nsize=1g\nrwmixread=101", 3, &["`rwmixread`", "0 to 100"]),
        ("[a]\nsize=1g\nruntime=5min", 3, &["`runtime`", "24h"]),
        ("[a]\nsize=1g\nkb_base=1023", 3, &["`kb_base`", "1024 or 1000"]),
        ("[a]\nrw=read", 1, &["job `a`", "give it a `size`"]),
        ("[a]\nsize=1g\nbs=256m", 1, &["bs = 256 MiB", "128 MiB"]),
        ("[a]\nsize=1g\nfilesize=1g\noffset=1g", 1, &["no block"]),
        ("[a]\nsize=1g\nio_size=0", 1, &["asks for nothing"]),
        ("[a]\nsize=1g\ntime_based", 1, &["give it a `runtime`"]),
        ("[b]\nsize=1g\n[a]\nsize=5000g\nfilename=/dev/x", 3, &["job `a`", "the volume has"]),
        ("[a]\nsize=3000g\nnumjobs=2", 1, &["behind the volume"]),
        ("[a]\nsize=3000g\n[b]\nsize=1000g\nfilename=b\n[c]\nfilename=b\nsize=1g", 0, &[]),
        ("[a]\nsize=1m\nnumjobs=400\n[b]\nsize=1m\nnumjobs=400", 4, &["800 clones", "512"]),
    ] {
        let result = read(text, VOLUME, &variable);
        if words.is_empty() {
            assert!(result.is_ok(), "{text}");
            continue;
        }
        let error = result.expect_err(text);
        let said = error.to_string();
        assert_eq!(error.line, line, "{said}\n{text}");
        words.iter().for_each(|word| assert!(said.contains(word), "{word} is missing: {said}\n{text}"));
    }
}
