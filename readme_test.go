package penstock_test

import (
	"os"
	"regexp"
	"testing"

	"penstock/limiter/policy"
)

// TestLimitsInDocumentsAreValid keeps the examples that people copy in step with what the program
// accepts.
func TestLimitsInDocumentsAreValid(t *testing.T) {
	readme, err := os.ReadFile("README.md")
	if err != nil {
		t.Fatal(err)
	}
	examples := regexp.MustCompile("(?s)```yaml\n(.*?)```").FindAllSubmatch(readme, -1)
	if len(examples) == 0 {
		t.Error("README.md shows no YAML")
	}
	for _, example := range examples {
		if _, err := policy.Parse("README.md", example[1]); err != nil {
			t.Error(err)
		}
	}
	for _, path := range []string{"deploy/limits", "examples/nginx/limits.yaml"} {
		if _, err := policy.Load(path); err != nil {
			t.Error(err)
		}
	}
}
