#![no_main]

libfuzzer_sys::fuzz_target!(init: halocline_fuzz::seed("neighbor_controls"), |bytes: &[u8]| {
    halocline_fuzz::guarded(halocline_fuzz::neighbor_controls, bytes);
});
