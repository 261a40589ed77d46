#![no_main]

libfuzzer_sys::fuzz_target!(init: halocline_fuzz::seed("packets"), |bytes: &[u8]| {
    halocline_fuzz::guarded(halocline_fuzz::packets, bytes);
});
