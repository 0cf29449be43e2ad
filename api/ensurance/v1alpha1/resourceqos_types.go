// Copyright The Crane Authors.
// SPDX-License-Identifier: Apache-2.0

package v1alpha1

// ResourceQOS is the quality of service of pods, by resource. As in gocrane, only cpuQOS.cpuPriority is used.
type ResourceQOS struct {
	// CPUQOS is for cpu.
	// +optional
	CPUQOS *CPUQOS `json:"cpuQOS,omitempty"`

	// MemoryQOS is for memory. It has no effect, as in gocrane.
	// +optional
	MemoryQOS *MemoryQOS `json:"memoryQOS,omitempty"`

	// NetIOQOS is for the network. It has no effect, as in gocrane.
	// +optional
	NetIOQOS *NetIOQOS `json:"netIOQOS,omitempty"`

	// DiskIOQOS is for disks. It has no effect, as in gocrane.
	// +optional
	DiskIOQOS *DiskIOQOS `json:"diskIOQOS,omitempty"`
}

// CPUQOS is the quality of service of pods for CPU.
type CPUQOS struct {
	// CPUPriority is from 0, the highest, to 7. Pods above 0 are batch work that yields.
	// +optional
	// +kubebuilder:validation:Minimum=0
	// +kubebuilder:validation:Maximum=7
	CPUPriority *int32 `json:"cpuPriority,omitempty"`

	// ContainerPriority overrides cpuPriority by the name of a container. It has no effect, as in gocrane.
	// +optional
	ContainerPriority map[string]CPUPriority `json:"containerPriority,omitempty"`

	// CPUBurst lets containers pass their cpu limit for a moment. It has no effect, as in gocrane.
	// +optional
	CPUBurst *CPUBurst `json:"cpuBurst,omitempty"`

	// HTIsolation keeps batch work off the sibling threads of other pods. It has no effect, as in gocrane.
	// +optional
	HTIsolation *HTIsolation `json:"htIsolation,omitempty"`

	// CPUSet configures the CPU cores of pods. It has no effect, as in gocrane.
	// +optional
	CPUSet *CPUSet `json:"cpuSet,omitempty"`

	// RDT limits the last-level cache and the memory bandwidth of the pods. It has no effect, as in gocrane.
	// +optional
	RDT *RDT `json:"rdt,omitempty"`

	// ContainerRDT overrides rdt by the name of a container. It has no effect, as in gocrane.
	// +optional
	ContainerRDT map[string]RDT `json:"containerRdt,omitempty"`
}

// CPUPriority is a priority for cpu, from 0, the highest, to 7.
//
// +kubebuilder:validation:Minimum=0
// +kubebuilder:validation:Maximum=7
type CPUPriority int32

// CPUBurst lets containers pass their cpu limit for a moment.
type CPUBurst struct {
	// BurstQuota is how much cpu time can be saved up for a burst.
	// +optional
	// +kubebuilder:validation:MaxLength=64
	BurstQuota string `json:"burstQuota,omitempty"`
}

// HTIsolation keeps batch work off the sibling threads of other pods.
type HTIsolation struct {
	// Enable switches it on. Defaults to false.
	// +optional
	Enable bool `json:"enable,omitempty"`
}

// CPUSet configures the CPU cores of pods.
type CPUSet struct {
	// CPUSet is none (the cores that are not exclusive to a container), exclusive (cores for this pod only) or share (cores
	// for this pod that other pods may also use).
	// +optional
	// +kubebuilder:validation:Enum=none;exclusive;share
	CPUSet string `json:"cpuSet,omitempty"`
}

// RDT limits the last-level cache and the memory bandwidth, in the form of the kernel's resctrl.
type RDT struct {
	// L3 are cache masks by cache id.
	// +optional
	L3 map[string]string `json:"l3,omitempty"`

	// MB are shares of memory bandwidth by cache id.
	// +optional
	MB map[string]string `json:"mb,omitempty"`
}

// MemoryQOS is the quality of service of pods for memory. It has no effect, as in gocrane.
type MemoryQOS struct {
	// MemPriority is from 0, the highest, to 7. Memory of lower priorities is reclaimed first.
	// +optional
	// +kubebuilder:validation:Minimum=0
	// +kubebuilder:validation:Maximum=7
	MemPriority *int32 `json:"memPriority,omitempty"`

	// MemAsyncReclaim reclaims memory in the background.
	// +optional
	MemAsyncReclaim *MemAsyncReclaim `json:"memAsyncReclaim,omitempty"`

	// MemWatermark is the usage at which reclaim starts.
	// +optional
	MemWatermark *MemWatermark `json:"memWatermark,omitempty"`

	// MemPageCacheLimit limits the page cache.
	// +optional
	MemPageCacheLimit *MemPageCacheLimit `json:"memPageCacheLimit,omitempty"`

	// MemoryCompression compresses memory that is rarely used.
	// +optional
	MemoryCompression *PodMemoryCompression `json:"memoryCompression,omitempty"`
}

// MemAsyncReclaim reclaims memory in the background.
type MemAsyncReclaim struct {
	// AsyncRatio is the usage in percent of the limit at which reclaim starts, from 0 to 100.
	// +optional
	// +kubebuilder:validation:Minimum=0
	// +kubebuilder:validation:Maximum=100
	AsyncRatio *int64 `json:"asyncRatio,omitempty"`

	// AsyncDistanceFactor is the distance below AsyncRatio at which reclaim stops, from 0 up.
	// +optional
	// +kubebuilder:validation:Minimum=0
	AsyncDistanceFactor *int64 `json:"asyncDistanceFactor,omitempty"`
}

// MemWatermark is the usage at which reclaim starts.
type MemWatermark struct {
	// WatermarkRatio moves the water mark, in percent; negative values move it down.
	// +optional
	WatermarkRatio *int `json:"watermarkRatio,omitempty"`
}

// MemPageCacheLimit limits the page cache.
type MemPageCacheLimit struct {
	// PageCacheMaxRatio is the largest page cache in percent of the memory limit, from 0 to 100.
	// +optional
	// +kubebuilder:validation:Minimum=0
	// +kubebuilder:validation:Maximum=100
	PageCacheMaxRatio *int64 `json:"pageCacheMaxRatio,omitempty"`

	// PageCacheReclaimRatio is the additional amount to reclaim, in percent, from 0 to 100.
	// +optional
	// +kubebuilder:validation:Minimum=0
	// +kubebuilder:validation:Maximum=100
	PageCacheReclaimRatio *int64 `json:"pageCacheReclaimRatio,omitempty"`
}

// PodMemoryCompression compresses memory of pods that is rarely used.
type PodMemoryCompression struct {
	// Enable switches it on. Defaults to false.
	// +optional
	Enable bool `json:"enable,omitempty"`

	// CompressionLevel is the intensity of compression, from 0 to 4.
	// +optional
	// +kubebuilder:validation:Minimum=0
	// +kubebuilder:validation:Maximum=4
	CompressionLevel int `json:"compressionLevel,omitempty"`

	// Preference selects the memory to compress: Tiny (little), Normal, FileOnly (page cache) or AnonOnly (anonymous memory).
	// Defaults to Tiny.
	// +optional
	// +kubebuilder:default=Tiny
	// +kubebuilder:validation:Enum=Tiny;Normal;FileOnly;AnonOnly
	Preference string `json:"preference,omitempty"`

	// Oversold determines whether the freed memory is offered to other pods: Transparent, None or Allow. Defaults to Allow.
	// +optional
	// +kubebuilder:default=Allow
	// +kubebuilder:validation:Enum=Transparent;None;Allow
	Oversold string `json:"oversold,omitempty"`
}

// NetIOQOS is the quality of service of pods for the network. It has no effect, as in gocrane.
type NetIOQOS struct {
	// NetIOPriority is the priority of the pods' traffic, from 0 up; 0 is the highest.
	// +optional
	// +kubebuilder:validation:Minimum=0
	NetIOPriority *int64 `json:"netIOPriority,omitempty"`

	// ContainersPriority overrides netIOPriority by the name of a container.
	// +optional
	ContainersPriority map[string]int64 `json:"containersPriority,omitempty"`

	// NetIOLimits limits the rates of a pod.
	// +optional
	NetIOLimits *NetIOLimits `json:"netIOLimits,omitempty"`

	// DevNetIOLimits limits the rates of a pod by network device.
	// +optional
	DevNetIOLimits map[string]NetIOLimits `json:"devNetIOLimits,omitempty"`

	// WhitelistPorts are ports whose traffic is not limited.
	// +optional
	WhitelistPorts *WhitelistPorts `json:"whitelistPorts,omitempty"`
}

// NetIOLimits limits network rates.
type NetIOLimits struct {
	// RxBps limits what is received, in bits per second, from 0 up.
	// +kubebuilder:validation:Minimum=0
	RxBps *int64 `json:"rxBps"`

	// TxBps limits what is sent, in bits per second, from 0 up.
	// +kubebuilder:validation:Minimum=0
	TxBps *int64 `json:"txBps"`
}

// WhitelistPorts are ports whose traffic is not limited.
type WhitelistPorts struct {
	// LPorts are local ports, such as 80,8000-8080.
	// +kubebuilder:validation:MaxLength=1024
	LPorts string `json:"lports"`

	// RPorts are remote ports, such as 80,8000-8080.
	// +kubebuilder:validation:MaxLength=1024
	RPorts string `json:"rports"`
}

// DiskIOQOS is the quality of service of pods for disks. It has no effect, as in gocrane.
type DiskIOQOS struct {
	// DiskIOWeight is the share of a disk.
	// +optional
	DiskIOWeight *DiskIOWeight `json:"diskIOWeight,omitempty"`

	// DiskIOLimit limits the rates.
	// +optional
	DiskIOLimit *DiskIOLimit `json:"diskIOLimit,omitempty"`
}

// DiskIOWeight is the share of a disk.
type DiskIOWeight struct {
	// Weight is the share relative to other pods, from 0 up.
	// +optional
	// +kubebuilder:validation:Minimum=0
	Weight *int64 `json:"weight,omitempty"`
}

// DiskIOLimit limits disk rates.
type DiskIOLimit struct {
	// ReadIOps limits reads per second, from 0 up.
	// +optional
	// +kubebuilder:validation:Minimum=0
	ReadIOps *int64 `json:"readIOps,omitempty"`

	// WriteIOps limits writes per second, from 0 up.
	// +optional
	// +kubebuilder:validation:Minimum=0
	WriteIOps *int64 `json:"writeIOps,omitempty"`

	// ReadBps limits reads, in bytes per second, from 0 up.
	// +optional
	// +kubebuilder:validation:Minimum=0
	ReadBps *int64 `json:"readBps,omitempty"`

	// WriteBps limits writes, in bytes per second, from 0 up.
	// +optional
	// +kubebuilder:validation:Minimum=0
	WriteBps *int64 `json:"writeBps,omitempty"`
}
