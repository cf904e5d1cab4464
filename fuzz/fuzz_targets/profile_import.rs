//! A TCP/IP profile of any bytes becomes a system file, or is refused.
#![no_main]

libfuzzer_sys::fuzz_target!(|program: &[u8]| proof::hostile::profile_import(program));
