#![no_main]

libfuzzer_sys::fuzz_target!(init: halocline_fuzz::seed("sparse_controls"), |bytes: &[u8]| {
    halocline_fuzz::guarded(halocline_fuzz::sparse_controls, bytes);
});
