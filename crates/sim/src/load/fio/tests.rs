// SPDX-License-Identifier: MIT OR Apache-2.0
//! Job files as the published comparisons have them, and what is refused.

use super::*;
use crate::load::Pattern;

const GIB: u64 = 1 << 30;
const VOLUME: u64 = 4000 * GIB;

fn good(text: &str) -> JobFile {
    read(text, VOLUME).unwrap_or_else(|error| panic!("{error}\n{text}"))
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
    // kb_base holds for the sizes before it too.
    assert_eq!(job("size=1Gi\nkb_base=1000").span_bytes, GIB);
    let clones = good("[j]\nfilename=/dev/x\nnumjobs=3\nsize=1g\noffset=1g\noffset_increment=10g\n");
    let places: Vec<u64> = clones.phases[0].jobs.iter().map(|job| job.offset_bytes / GIB).collect();
    assert_eq!(places, [1, 11, 21]);
}

#[test]
fn what_would_be_another_load_is_refused_with_line_and_advice() {
    for (text, line, words) in [
        ("", 0, &["no job", "[NAME]"][..]),
        ("[global]\nbs=4k\n", 0, &["no job"]),
        ("bs=4k\n[a]\nsize=1g", 1, &["`bs`", "no section"]),
        ("[a\nsize=1g", 1, &["`[a`", "[NAME]"]),
        ("[a]\nsize=1g\niodept=4", 3, &["`iodept`", "unknown", "docs/scenarios.md"]),
        ("[a]\nsize=1g\nrate=1m", 3, &["`rate`", "`rate_iops`"]),
        ("[a]\nsize=1g\nrate_iops=0", 3, &["`rate_iops`", "of each clone"]),
        ("[a]\nsize=1g\nrate_iops=70,", 3, &["`rate_iops`", "70,30"]),
        ("[a]\nsize=1g\nrw=randrw\nrwmixread=70\nrate_iops=100", 1, &["job `a`", "`rwmixread`", "70,30"]),
        ("[a]\nsize=1g\nrw=write\nrate_iops=100\nfsync=1", 1, &["job `a`", "rate_iops, fsync", "leave one out"]),
        ("[a]\nsize=1g\nverify=crc32c", 3, &["`verify`", "no data"]),
        ("[a]\nsize=1g\nverify_fatal=1", 3, &["`verify_fatal`", "no data"]),
        ("[a]\nsize=1g\nbssplit=4k/50:8k/50", 3, &["`bssplit`", "one length"]),
        ("include other.fio\n[a]\nsize=1g", 1, &["`include`", "into this file"]),
        ("[a]\nsize=${SIZE}", 2, &["`size`", "variables"]),
        ("[a]\nsize=1x", 2, &["`size`", "`1x`", "128k"]),
        ("[a]\nsize=50%", 2, &["`size`", "`50%`"]),
        ("[a]\nrw=trim\nsize=1g", 2, &["`rw`", "`trim`", "randrw"]),
        ("[a]\nsize=1g\nbs=4k,8k", 3, &["`bs`", "one size"]),
        ("[a]\nsize=1g\nioengine=mmap", 3, &["`ioengine`", "libaio", "psync"]),
        ("[a]\nsize=1g\niodepth=0", 3, &["`iodepth`", "at least 1"]),
        ("[a]\nsize=1g\nrandom_distribution=zipf", 3, &["zipf:THETA"]),
        ("[a]\nsize=1g\nrandom_distribution=pareto:1.5", 3, &["pareto:H"]),
        ("[a]\nsize=1g\nfilename=/dev/a:/dev/b", 3, &["`filename`", "one volume"]),
        ("[a]\nsize=1g\nrwmixread=101", 3, &["`rwmixread`", "0 to 100"]),
        ("[a]\nsize=1g\nruntime=5min", 3, &["`runtime`", "24h"]),
        ("[a]\nsize=1g\nkb_base=1023", 3, &["`kb_base`", "1024 or 1000"]),
        ("[a]\nrw=read", 1, &["job `a`", "give it a `size`"]),
        ("[a]\nsize=1g\nbs=6k", 1, &["job `a`", "bs = 6144", "4 KiB"]),
        ("[a]\nsize=1g\nbs=2m", 1, &["bs = 2097152", "1 MiB"]),
        ("[a]\nsize=1g\noffset=512", 1, &["offset", "multiples of 4 KiB"]),
        ("[a]\nsize=1g\nfilesize=1g\noffset=1g", 1, &["no block"]),
        ("[a]\nsize=1g\nio_size=0", 1, &["asks for nothing"]),
        ("[a]\nsize=1g\ntime_based", 1, &["give it a `runtime`"]),
        ("[b]\nsize=1g\n[a]\nsize=5000g\nfilename=/dev/x", 3, &["job `a`", "the volume has"]),
        ("[a]\nsize=3000g\nnumjobs=2", 1, &["behind the volume"]),
        ("[a]\nsize=3000g\n[b]\nsize=1000g\nfilename=b\n[c]\nfilename=b\nsize=1g", 0, &[]),
        ("[a]\nsize=1m\nnumjobs=400\n[b]\nsize=1m\nnumjobs=400", 4, &["800 clones", "512"]),
        ("[a]\nsize=1g\nfilename=/dev/a\n[b]\nsize=1g\nfilename=/dev/b", 4, &["second volume"]),
        ("[a]\nsize=1g\n[b]\nsize=1g\nstartdelay=5", 3, &["startdelay", "begin together"]),
    ] {
        let result = read(text, VOLUME);
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
