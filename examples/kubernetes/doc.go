// Package kubernetes holds the manifests of this folder against the types of Kubernetes, and runs
// their containers as processes, with the arguments and variables that the manifests give them.
package kubernetes
