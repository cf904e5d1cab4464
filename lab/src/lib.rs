//! The lab: cases, workloads, measurement, reports.
#![forbid(unsafe_code)]
