// SPDX-License-Identifier: MIT OR Apache-2.0
//! Lists fio's options that have no meaning of their own here (fio's HOWTO, versions 3.33 to 3.41).

/// These options have no effect here. Some say how fio measures and reports, or how it makes its
/// files and buffers. Others say which processor fio runs on, or how an engine reaches its storage.
#[rustfmt::skip]
pub(super) const NO_EFFECT: &[&str] = &[
    "allow_file_create", "allow_mounted_write", "allrandrepeat", "apptag", "apptag_mask",
    "arguments", "bandwidth-log", "bindname", "block_error_percentiles", "brick",
    "buffer_compress_chunk", "buffer_compress_percentage", "buffer_pattern", "busy_poll",
    "busy_wait_polling", "bwavgtime", "cgroup", "cgroup_nodelete", "cgroup_weight", "chunk_size",
    "clat_percentiles", "clientname", "clocksource", "clustername", "cmd_type", "cmdprio",
    "cmdprio_bssplit", "cmdprio_class", "cmdprio_hint", "cmdprio_percentage", "conf", "cont",
    "continue_on_error", "cpuchunks", "cpuload", "cpumask", "cpumode", "cpus_allowed",
    "cpus_allowed_policy", "create_fsync", "create_on_open", "create_serialize", "cuda_io",
    "dataplacement", "deallocate", "dedup", "dedupe_global", "dedupe_mode", "dedupe_percentage",
    "dedupe_working_set_percentage", "description", "direct_write_to_pmem", "directory", "disable_bw",
    "disable_bw_measurement", "disable_clat", "disable_lat", "disable_slat", "disk_util",
    "donorname", "dp_scheme", "error_dump", "exec_postrun", "exec_prerun", "exit_on_io_done",
    "exit_what", "exitall", "exitall_on_error", "experimental_verify", "fadvise_hint",
    "fallocate", "fdp", "fdp_pli", "fdp_pli_select", "file_append", "filename_format",
    "filename_map", "fixedbufs", "force_async", "gid", "gpu_dev_id", "gpu_dev_ids",
    "gpu_memory_type", "grace_time", "group_reporting", "gtod_cpu", "gtod_reduce",
    "hdfsdirectory", "hipri", "hipri_percentage", "host", "hostname", "http_host", "http_mode",
    "http_pass", "http_s3_key", "http_s3_keyid", "http_s3_max_keys", "http_s3_region",
    "http_s3_security_token", "http_s3_sse_customer_algorithm", "http_s3_sse_customer_key",
    "http_s3_storage_class", "http_swift_auth_token", "http_user", "http_verbose", "https",
    "ignore_error", "inplace", "interface", "invalidate", "io_submit_mode", "iomem",
    "iomem_align", "iopsavgtime", "ioscheduler", "job_start_clock_id", "lat_percentiles",
    "libblkio_driver", "libblkio_force_enable_completion_eventfd", "libblkio_num_entries",
    "libblkio_path", "libblkio_pre_connect_props", "libblkio_pre_start_props",
    "libblkio_queue_size", "libblkio_vectored", "libblkio_wait_mode",
    "libblkio_write_zeroes_on_trim", "listen", "lockmem", "log_alternate_epoch",
    "log_alternate_epoch_clock_id", "log_avg_msec", "log_compression", "log_compression_cpus",
    "log_entries", "log_hist_coarseness", "log_hist_msec", "log_issue_time", "log_max_value",
    "log_offset", "log_prio", "log_store_compressed", "log_unix_epoch", "log_window_value",
    "max_latency", "md_per_io_size", "mem", "mem_align", "minimal", "mss", "name", "namenode",
    "new_group", "nfs_url", "nice", "nodelay", "nodename", "nonvectored", "nowait",
    "numa_cpu_nodes", "numa_mem_policy", "object_class", "openfiles", "output", "output-format",
    "overwrite", "per_job_logs", "percentile_list", "pi_act", "pi_chk", "pingpong", "plid_select",
    "plids", "pool", "port", "pre_read", "prio", "prioclass", "program", "protocol",
    "random_generator", "randrepeat", "rate_cycle", "rate_iops_min", "rate_min", "ratecycle",
    "ratemin", "rbdname", "readfua", "refill_buffers", "registerfiles", "scramble_buffers",
    "serialize_overlap", "serverip", "sg_write_mode", "significant_figures", "single_instance",
    "skip_bad", "slat_percentiles", "sqthread_poll", "sqthread_poll_cpu", "stat_type", "stats",
    "std_redirect", "stream_id", "thp", "thread", "threads", "touch_objects", "ttl", "uid", "uncached",
    "unified_rw_reporting", "unique_filename", "unit_base", "unlink", "unlink_each_loop", "uri",
    "use_direct", "userspace_reap", "verb", "verify_async", "verify_async_cpus", "verify_dump",
    "verify_fatal", "verify_header_seed", "verify_interval", "verify_mode", "verify_offset",
    "verify_pattern", "verify_pattern_interval", "verify_state_load", "verify_state_save",
    "verify_table", "verifysort", "verifysort_nr", "volume", "window_size", "write_barrier",
    "write_bw_log", "write_hint", "write_hist_log", "write_iolog", "write_iops_log",
    "write_lat_log", "write_mode", "writefua", "zero_buffers",
];

/// These options change what fio asks for, or when. The simulation does not have them, and says so.
#[rustfmt::skip]
pub(super) const LEFT_OUT: &[&str] = &[
    "atomic", "blocksize_unaligned", "bs_is_seq_rand", "bs_unaligned", "end_fsync",
    "file_service_type", "flow", "flow_id", "flow_sleep", "flow_watermark", "fsync_on_close",
    "ignore_zone_limits", "iodepth_batch", "iodepth_batch_complete", "iodepth_batch_complete_max",
    "iodepth_batch_complete_min", "iodepth_batch_submit", "iodepth_low", "job_max_open_zones",
    "latency_percentile", "latency_run", "latency_target", "latency_window", "max_open_zones",
    "num_range", "offset_align", "profile", "ramp_size", "rate_ignore_thinktime",
    "read_beyond_wp", "recover_zbd_write_error", "replay_align", "replay_no_stall",
    "replay_redirect", "replay_scale", "replay_skip", "replay_time_scale", "rw_sequencer",
    "softrandommap", "spr_cache_size", "spr_num_regions", "spr_op", "sprandom", "ss", "ss_dur",
    "ss_interval", "ss_ramp", "steadystate", "steadystate_check_interval", "steadystate_duration",
    "steadystate_ramp_time", "sync_file_range", "thinkcycles", "thinktime_blocks_type",
    "thinktime_iotime", "thinktime_spin", "trim_backlog", "trim_backlog_batch", "trim_percentage",
    "trim_verify_zero", "verify_backlog", "verify_backlog_batch", "verify_write_sequence",
    "wait_for", "zone_reset_frequency", "zone_reset_threshold", "zonecapacity", "zonemode",
    "zonerange", "zonesize", "zoneskip",
];

/// Without these options a job would be quite another one. Each has advice on what to do instead.
pub(super) const INSTEAD: &[(&str, &str)] = &[
    ("opendir", "name one volume with `filename`"),
    ("include", "write the other file's options into this file"),
    ("read_iolog", "`flashfront sim replay` takes fio's logs of I/O"),
    ("merge_blktrace", "`flashfront sim replay` takes traces of blktrace"),
];
